"""The command line as a person uses it: every error has one message and exit code 2."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs import job
from results_folder import handmade
from rlbench.cli import main
from rlbench.devices import devices_here, gpus
from rlbench.records import EvaluationRow, read_facts, read_rows
from rlbench.spec.grid import Devices
from rlbench.spec.job import Job

CONFIGS = Path(__file__).parents[1] / "config"
QUICK = ["--total-steps", "200", "--batch-size", "100", "--hidden-dim", "8", "--eval-episodes", "1"]
COMMANDS = [
    "train", "evaluate", "compare", "throughput", "aggregate", "tables", "figures", "report",
    "info", "check", "show-job",
]  # fmt: skip


FIRST_STEP = """
import sys
from rlbench.training.envs.vector import Environments

def step(*_):
    raise KeyboardInterrupt

Environments.step = step
"""
"""Ends a run at the first step of any environment."""


def imported(*arguments: Any, before: str = "import sys") -> set[str]:
    """Top-level modules in a process of its own once a command has ended."""
    code = f"{before}\nfrom rlbench.cli import main\ntry: main(sys.argv[1:])\n"
    code += "finally: print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def run(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


def trained_job(folder: Path) -> Job:
    return read_facts(folder).job


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every command of the analysis can run."""
    folder = tmp_path_factory.mktemp("results")
    handmade(folder)
    assert all(run(name, folder) == 0 for name in ("aggregate", "tables", "figures"))
    return folder


@pytest.mark.skipif(bool(gpus()), reason="PyTorch is asked where a GPU driver answers")
@pytest.mark.parametrize("command", ["--help", "info", "check", "show-job"])
def test_looking_does_not_wait_for_pytorch(command: str) -> None:
    arguments: dict[str, list[Any]] = {
        "check": [CONFIGS / "smoke.yaml"],
        "show-job": [CONFIGS / "smoke.yaml", "ppo/Pendulum-v1/1/cpu/0"],
    }
    assert not {"torch", "pandas", "matplotlib"} & imported(command, *arguments.get(command, []))


@pytest.mark.parametrize("command", ["aggregate", "tables", "figures", "report"])
def test_analysis_does_not_wait_for_pytorch(command: str, results: Path) -> None:
    assert "torch" not in imported(command, results)


@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
def test_a_run_waits_for_what_its_first_step_needs(algorithm: str, tmp_path: Path) -> None:
    """Tables and figures belong to the end or to others, the compiler to runs that compile."""
    flags = ["--algorithm", algorithm, "--output-dir", tmp_path, "--device", "cpu", *QUICK]
    found = imported("train", *flags, before=FIRST_STEP)
    assert {"torch", "gymnasium"} <= found
    assert not {"torch._dynamo", "pandas", "pyarrow", "scipy", "matplotlib"} & found
    assert "torch._dynamo" not in imported("train", *flags)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(command, "--help")
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: rlbench {command}" in text
    options = re.findall(r"^\W*--[a-z]", text, re.MULTILINE)
    assert len(options) >= {"train": 30, "compare": 15}.get(command, 0)


def test_every_hyperparameter_is_a_flag_with_its_preset_as_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, shown in (
        (["--algorithm", "trpo"], "--max-kl FLOAT"),
        (["--env-name=Acrobot-v1"], "(default: 0.99)"),
        ([], "(default: scaled)"),
    ):
        with pytest.raises(SystemExit):
            run("train", *arguments, "--help")
        assert shown in " ".join(capsys.readouterr().out.split())


def test_the_original_flags_work_with_their_defaults(tmp_path: Path) -> None:
    run("train", "--env-name", "Pendulum-v1", "--num-episodes", 2, "--batch-size", 100,
        "--num-envs", 2, "--vector-mode", "sync", "--cpu-threads", 1, "--device", "cpu",
        "--seed", 7, "--hidden-dim", 8, "--output-dir", tmp_path, "--eval-episodes", 1)  # fmt: skip
    made = trained_job(tmp_path)
    assert (made.environment, made.num_episodes, made.total_steps) == ("Pendulum-v1", 2, None)
    assert (made.batch_size, made.num_envs, made.vector_mode) == (100, 2, "sync")
    assert (made.device, made.seed, made.algorithm.hidden_sizes) == ("cpu", 7, (8, 8))


def test_defaults_are_those_of_the_original_system(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("train", "--help")
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    cores = len(os.sched_getaffinity(0))
    for flag, default in {
        "--env-name STR": "Pendulum-v1",
        "--batch-size INT": "2000",
        "--num-envs INT": str(min(4, cores)),
        "--vector-mode {auto,sync,async,native,fused,envpool}": "auto",
        "--cpu-threads INT": str(min(8, cores)),
        "--device {auto,cpu,cuda}": "auto",
        "--seed INT": "42",
        "--hidden-sizes [INT [INT ...]]": "128 128",
        "--output-dir PATH": "outputs",
    }.items():
        after = text[text.index(flag) + len(flag) :]
        assert after[after.index("(default: ") :].startswith(f"(default: {default})"), flag
    assert "500 if no budget is given" in text


def test_a_flag_wins_over_the_preset(tmp_path: Path) -> None:
    run("train", *QUICK, "--gamma", "0.5", "--output-dir", tmp_path)
    settings = trained_job(tmp_path).algorithm
    assert (settings.gamma, settings.gae_lambda) == (0.5, 0.9)


def test_train_names_its_files_and_sums_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", *QUICK, "--algorithm", "trpo", "--output-dir", tmp_path) == 0
    text = capsys.readouterr().out
    for path in tmp_path.iterdir():
        assert f"wrote {path}" in text
    for line in (
        "episodes",
        "steps",
        "updates",
        "wall time (s)",
        "steps/s, without evaluations",
        "line search, step scale",
    ):
        assert f"\n  {line} " in text
    assert "nan" not in text


def test_a_job_as_json_is_run_as_it_is(tmp_path: Path) -> None:
    which = job("trpo")
    assert run("train", "--job", which.model_dump_json(), "--output-dir", tmp_path) == 0
    assert trained_job(tmp_path) == which


def test_compare_writes_both_files_without_a_display(tmp_path: Path) -> None:
    """In a process of its own, with the window not suppressed, and no display."""
    environment = {k: v for k, v in os.environ.items() if k not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    done = subprocess.run(
        ["rlbench", "compare", "--num-episodes", "4", "--num-envs", "2", "--batch-size", "400",
         "--hidden-dim", "8", "--eval-episodes", "1", "--output-dir", tmp_path],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    saved = np.load(tmp_path / "training_metrics.npz")
    assert set(saved) == {"ppo_rewards", "trpo_rewards"}
    assert saved["ppo_rewards"].shape == saved["trpo_rewards"].shape == (4,)
    assert (saved["ppo_rewards"] < 0).all()
    picture = (tmp_path / "ppo_vs_trpo_comparison.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert done.stdout.count("mean of the last 20 returns") == 2
    assert "ppo on Pendulum-v1: device cpu, num_envs 2" in done.stderr
    assert {trained_job(tmp_path / a).seed for a in ("ppo", "trpo")} == {42}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "--batch-size", "0"],
            "flags: batch_size: got 0; input should be greater than 0",
        ),
        (["train", "--clip-range", "2"], "flags: clip_range: got 2.0; input should be less than 1"),
        (["train", "--env-name", "Nope-v0"], "environment 'Nope-v0': "),
        (
            ["train", "--algorithm", "sac"],
            "got algorithm 'sac'; allowed: ppo, ppo-kl, a2c, trpo, npg",
        ),
        (
            ["train", "--num-envs", "64", "--batch-size", "32"],
            "num_envs 64 is more than batch_size",
        ),
        (["train", "--total-steps", "9", "--num-episodes", "9"], "give exactly one budget"),
        (["train", "--job", "{"], "--job: not valid JSON"),
        (["train", "--job", '{"seed": 1}'], "--job: environment: required, but not given"),
        (["compare", "--num-envs", "-1"], "flags: num_envs: got -1"),
        (["check", "none.yaml"], "none.yaml: cannot be read"),
        (["show-job", CONFIGS / "smoke.yaml", "ppo"], "got cell 'ppo'; must be ALGORITHM/ENV"),
        (["show-job", CONFIGS / "smoke.yaml", "ppo/X-v0/1/cpu/0"], "which is not in the grid of"),
        (["aggregate", "nowhere"], "nowhere/benchmark.json: not there; the workflow makes it"),
        (["report", "nowhere"], "nowhere/benchmark.json: not there"),
        (["evaluate", "nowhere"], "nowhere: no such folder; must be that of a run"),
        (["evaluate", "."], "run.json: not there; a finished run has it"),
    ],
)
def test_a_wrong_request_is_one_message_and_exit_code_2(
    arguments: list[Any],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("rlbench: error: ")
    assert "Traceback" not in captured.err
    assert not list(tmp_path.rglob("*.parquet"))


def test_an_unknown_flag_exits_with_2_and_helps(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run("train", "--clip-rang", "0.1")
    assert left.value.code == 2
    assert "--clip-range" in capsys.readouterr().err


def test_a_run_that_fails_exits_with_1_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "--env-name", "probes:Raise50-v0", *QUICK, "--output-dir", tmp_path) == 1
    assert "environment 0 raised ValueError at step 50" in capsys.readouterr().err


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quick")
    run("train", *QUICK, "--observation-norm", "running", "--output-dir", folder)
    return folder


def test_evaluate_plays_the_recorded_episodes_again(
    quick_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process and in a new one; one episode has no deviation."""
    done = subprocess.run(
        ["rlbench", "evaluate", quick_run], capture_output=True, text=True, check=True
    )
    assert run("evaluate", quick_run) == 0
    text = capsys.readouterr().out
    assert text == done.stdout
    assert text.startswith("ppo on Pendulum-v1, seed 42: last policy\n")
    assert text.endswith("\nevery episode is exactly the one that the run recorded\n")
    final = read_rows(EvaluationRow, quick_run)["episode_return"].iloc[-1]
    for name in ("mean return", "worst return", "best return"):
        assert f"\n  {name:<32} {final:.1f}\n" in text
    assert "standard deviation" not in text


def test_evaluate_takes_another_policy_and_number_of_episodes(
    quick_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("evaluate", quick_run, "--policy", "best", "--episodes", 3) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("best policy")
    assert "  episodes                         3" in lines
    assert "  mean length                      200.0" in lines
    assert any(line.startswith("  standard deviation over episodes ") for line in lines)
    assert not lines[-1].startswith("every episode")


def test_evaluate_says_plainly_that_episodes_are_not_those_recorded(
    quick_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in quick_run.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    facts = json.loads((tmp_path / "run.json").read_text())
    facts["job"]["seed"] = 43
    (tmp_path / "run.json").write_text(json.dumps(facts))
    assert run("evaluate", tmp_path) == 1
    captured = capsys.readouterr()
    assert "mean return" in captured.out
    assert "the episodes are not those that the run recorded: 1 of 1 differ" in captured.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--episodes", "0"], "--episodes: got 0; must be at least 1"),
        (["--render", "film.avi"], "--render: got film.avi; must end in .mp4 or .gif"),
    ],
)
def test_evaluate_refuses_what_it_cannot_do(
    flags: list[str], message: str, quick_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("evaluate", quick_run, *flags) == 2
    captured = capsys.readouterr()
    assert captured.err == f"rlbench: error: {message}\n"
    assert captured.out == ""


def test_show_job_says_where_values_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    run("show-job", CONFIGS / "smoke.yaml", "ppo/Pendulum-v1/8/cpu/1")
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert lines["seed"].split() == ["1", "cell"]
    assert lines["total_steps"].endswith("smoke.yaml")
    assert lines["matmul_precision"].split() == ["high", "default"]
    assert "preset: tuned here" in lines["algorithm.gae_lambda"]
    assert lines["algorithm.clip_range"].split() == ["0.2", "default"]


def test_show_job_prints_a_job_that_train_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("show-job", CONFIGS / "smoke.yaml", "trpo/Pendulum-v1/8/cpu/1", "--json")
    text = capsys.readouterr().out
    small = json.dumps(json.loads(text) | {"total_steps": 400, "eval_episodes": 1})
    assert run("train", "--job", small, "--output-dir", tmp_path) == 0


def test_check_counts_cells_and_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", CONFIGS / "smoke.yaml", "--list-cells") == 0
    text = capsys.readouterr().out
    assert text.count("algorithm~") == 8
    assert "smoke: 8 cells and 4 throughput runs, 160,000 training steps" in text
    assert " MiB; " in text


def test_check_refuses_an_environment_that_does_not_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (CONFIGS / "smoke.yaml").read_text().replace("Pendulum-v1", "Pendulums-v1")
    (tmp_path / "c.yaml").write_text(text)
    assert run("check", tmp_path / "c.yaml") == 2
    assert "environment 'Pendulums-v1'" in capsys.readouterr().err


def test_check_refuses_a_vector_mode_that_an_environment_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (CONFIGS / "smoke.yaml").read_text().replace("Pendulum-v1", "MountainCar-v0")
    (tmp_path / "c.yaml").write_text(text + "\nvector_mode: native\n")
    assert run("check", tmp_path / "c.yaml") == 2
    assert "got 'native', which 'MountainCar-v0' does not have" in capsys.readouterr().err


def test_info_is_the_record_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    run("info")
    record = json.loads(capsys.readouterr().out)
    assert record["machine"]["cpu_cores"] >= 1
    assert record["software"]["packages"]["torch"]
    run("info", "--devices")
    said = capsys.readouterr()
    here = devices_here()
    assert said.out.split() == list(here.present)
    assert said.err == "".join(f"{device}: {why}\n" for device, why in here.missing.items())
    run("info", "--devices", "--json")
    assert Devices.model_validate_json(capsys.readouterr().out) == here


def test_a_reader_that_has_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "import sys; from rlbench.cli import main; sys.exit(main())"]
    done = subprocess.run([*command, "info"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_another_broken_pipe_is_not_taken_for_that(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def breaks() -> None:
        raise BrokenPipeError

    monkeypatch.setattr("rlbench.cli.describe_machine", breaks)
    with pytest.raises(BrokenPipeError):
        run("info")
    assert capfd.readouterr().out == ""
