import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from jobs import job, repeatable, trained
from rlbench.errors import InputError, RunFailed
from rlbench.records import (
    EpisodeRow,
    EvaluationRow,
    UpdateRow,
    read_facts,
    read_failure,
    read_rows,
)
from rlbench.software import code_digest, describe_software
from rlbench.training.checkpoint import load_policy
from rlbench.training.evaluate import Evaluator
from rlbench.training.progress import Progress
from rlbench.training.session import Session, opened
from rlbench.training.train import Log, run, train


def same(one: Path, other: Path) -> bool:
    """Whether two runs agree bit by bit on every column that is no clock reading."""
    for left, right in zip(repeatable(one).values(), repeatable(other).values(), strict=True):
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    return True


@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
def test_two_runs_of_a_job_are_equal_bit_by_bit(algorithm: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        trained(job(algorithm), tmp_path / name)
    assert same(tmp_path / "one", tmp_path / "two")
    policies = [
        torch.load(tmp_path / name / "policy.pt", weights_only=True) for name in ("one", "two")
    ]
    for network in ("actor", "critic"):
        for key, weights in policies[0][network].items():
            assert torch.equal(weights, policies[1][network][key])


def test_a_fresh_process_repeats_the_run(tmp_path: Path) -> None:
    """Nothing of this process (imports, global generators, hash seed) may matter."""
    which = job()
    np.random.default_rng().random()
    torch.rand(3)
    trained(which, tmp_path / "here")
    subprocess.run(
        ["rlbench", "train", "--job", which.model_dump_json(), "--output-dir", tmp_path / "there"],
        check=True,
        capture_output=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )
    assert same(tmp_path / "here", tmp_path / "there")


def test_every_vector_mode_trains_the_same_policy(tmp_path: Path) -> None:
    for mode in ("sync", "async", "native"):
        trained(job(vector_mode=mode), tmp_path / mode)
    assert same(tmp_path / "sync", tmp_path / "async")
    assert same(tmp_path / "sync", tmp_path / "native")
    assert read_facts(tmp_path / "async").vector_mode == "async"


def test_ppo_and_trpo_of_a_seed_start_from_the_same_policy_and_experience(tmp_path: Path) -> None:
    for algorithm in ("ppo", "trpo"):
        trained(job(algorithm, batch_size=600), tmp_path / algorithm)
    tables = [
        (repeatable(tmp_path / a)["EpisodeRow"], repeatable(tmp_path / a)["EvaluationRow"])
        for a in ("ppo", "trpo")
    ]
    pd.testing.assert_frame_equal(tables[0][0], tables[1][0])
    first = [evaluations[evaluations["env_steps"] == 0] for _, evaluations in tables]
    pd.testing.assert_frame_equal(first[0], first[1])


def test_other_seeds_give_other_runs(tmp_path: Path) -> None:
    returns = [trained(job(seed=s), tmp_path / str(s)).log.episodes[0] for s in (0, 1)]
    assert returns[0].episode_return != returns[1].episode_return


def test_evaluation_takes_no_randomness_from_training(tmp_path: Path) -> None:
    """Evaluating ten times as often, on more episodes, leaves every update as it was."""
    trained(job(), tmp_path / "rare")
    trained(job(eval_every_steps=20, eval_episodes=5), tmp_path / "often")
    rare, often = repeatable(tmp_path / "rare"), repeatable(tmp_path / "often")
    pd.testing.assert_frame_equal(rare["UpdateRow"], often["UpdateRow"], check_exact=True)
    pd.testing.assert_frame_equal(rare["EpisodeRow"], often["EpisodeRow"], check_exact=True)


@pytest.mark.parametrize(("num_envs", "actual"), [(1, 1000), (3, 1002), (7, 1001)])
def test_the_budget_is_kept_for_every_num_envs(num_envs: int, actual: int, tmp_path: Path) -> None:
    """Public bug: 10,000 steps asked for, 10,240 run. Here never a whole round too many."""
    which = job(num_envs=num_envs, total_steps=1000, batch_size=300, eval_every_steps=250)
    facts = trained(which, tmp_path).facts
    assert facts.actual_steps == actual
    assert facts.job.total_steps == 1000
    updates = read_rows(UpdateRow, tmp_path)
    assert updates["env_steps"].iloc[-1] == actual
    assert facts.actual_batch == which.rollout_steps * num_envs == updates["env_steps"].iloc[0]
    assert len(updates) == facts.updates == 4


def test_evaluations_meet_on_one_grid(tmp_path: Path) -> None:
    """Batches of 150, and of 154 with 7 environments; every 200 steps, and the end at 900."""
    taken = {1: [0, 300, 450, 600, 900], 7: [0, 308, 462, 616, 903]}
    for num_envs, steps in taken.items():
        which = job(num_envs=num_envs, total_steps=900, batch_size=150)
        trained(which, tmp_path / str(num_envs))
        grid = read_rows(EvaluationRow, tmp_path / str(num_envs))
        assert list(dict.fromkeys(grid["due_steps"])) == [0, 200, 400, 600, 900]
        assert list(dict.fromkeys(grid["env_steps"])) == steps
        assert (grid.groupby("due_steps").size() == 2).all()


def test_an_episode_budget_keeps_exactly_so_many_and_updates_once_more(tmp_path: Path) -> None:
    """Five episodes of 200 steps in 2 environments: 600 steps in each; batches of 500."""
    finished = trained(job(num_episodes=5, batch_size=500), tmp_path)
    assert len(read_rows(EpisodeRow, tmp_path)) == finished.facts.episodes == 5
    assert [row.env_steps for row in finished.log.updates] == [500, 1000, 1200]


def test_rows_add_up(tmp_path: Path) -> None:
    finished = trained(job(total_steps=2000, eval_every_steps=1000), tmp_path)
    updates, episodes = read_rows(UpdateRow, tmp_path), read_rows(EpisodeRow, tmp_path)
    assert updates["episodes"].sum() == len(episodes) == 10
    assert (episodes["length"] == 200).all()
    assert list(episodes["episode"]) == list(range(10))
    assert list(episodes["env_steps"]) == [400, 400, 800, 800, 1200, 1200, 1600, 1600, 2000, 2000]
    by_hand = episodes["episode_return"].iloc[:2].mean()
    assert updates["return_mean"].dropna().iloc[0] == pytest.approx(by_hand)
    phases = updates[["env_s", "policy_s", "update_s", "evaluate_s"]].to_numpy().sum()
    assert 0.95 * finished.facts.wall_s < phases <= finished.facts.wall_s


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_failed_run_leaves_its_reason_and_no_rows(mode: str, tmp_path: Path) -> None:
    with pytest.raises(RunFailed):
        trained(job(environment="probes:Raise50-v0", vector_mode=mode), tmp_path)
    assert [path.name for path in tmp_path.rglob("*.*")] == ["failure.json"]
    failure = read_failure(tmp_path / "state")
    assert failure is not None
    assert "raised ValueError at step 50: the probe's own words" in failure.reason


def test_a_nan_reward_fails_the_run_and_the_next_success_clears_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"environment 0 gave a non-finite reward"):
        trained(job(environment="probes:Nan100-v0", total_steps=1000), tmp_path)
    trained(job(environment="probes:Inf50-v0"), tmp_path)
    assert read_failure(tmp_path / "state") is None
    assert (tmp_path / "run.json").exists()


def test_a_refused_job_leaves_an_earlier_run_alone(tmp_path: Path) -> None:
    trained(job(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.*")}
    with pytest.raises(InputError, match="supported: Box"):
        trained(job(environment="probes:DictObs-v0"), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.*")} == before
    assert len(before) == 7


def test_a_run_that_fails_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    trained(job(), tmp_path)
    with pytest.raises(RunFailed):
        trained(job(environment="probes:Raise50-v0"), tmp_path)
    assert [path.name for path in tmp_path.rglob("*.*")] == ["failure.json"]


def test_an_evaluation_that_does_not_end_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="did not end within 30 steps; give the environment a time"):
        trained(job(environment="probes:Inf50-v0", eval_max_steps=30), tmp_path)


def test_provenance_is_taken_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code on disk may change while a run is on its way."""
    digest = code_digest()

    def run_and_edit(session: Session, progress: Progress) -> Log:
        monkeypatch.setattr("rlbench.software.code_digest", lambda: "edited")
        return run(session, progress)

    monkeypatch.setattr("rlbench.training.train.run", run_and_edit)
    assert trained(job(), tmp_path).facts.software.code_digest == digest


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_leaves_no_run_and_no_process(sign: signal.Signals, tmp_path: Path) -> None:
    which = job(total_steps=10_000_000, vector_mode="async", eval_every_steps=10_000_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "rlbench.cli", "train", "--job", which.model_dump_json()],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,  # noqa: PLW1509 (no threads here)
    )
    assert process.stderr is not None
    assert "ppo on Pendulum-v1" in process.stderr.readline()
    workers = list(children_of(process.pid))
    assert len(workers) >= 2
    time.sleep(0.5)
    process.send_signal(sign)
    _, errors = process.communicate(timeout=20)
    assert process.returncode not in {0, None}
    assert sign == signal.SIGKILL or "Traceback" not in errors
    assert not list(tmp_path.rglob("*.json")) + list(tmp_path.rglob("*.parquet"))
    deadline = time.monotonic() + 10
    while any(is_running(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(is_running(pid) for pid in workers)


def heed_ctrl_c() -> None:
    """Undo what a shell in the background hands down: ignoring SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def children_of(pid: int) -> Iterator[int]:
    """Process ids of the children, by /proc."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            yield int(entry.parent.name)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_saved_policy_evaluates_as_it_did(tmp_path: Path) -> None:
    """Weights only, in networks of another initialisation, on the run's own start states."""
    finished = trained(job(), tmp_path)
    with opened(finished.facts.job) as session:
        saved = load_policy(tmp_path / "policy.pt", (session.actor, session.critic))
        seeds = session.streams.eval_seeds
        with Evaluator(session.job, seeds, session.device) as evaluator:
            again = [
                outcome.episode_return
                for outcome in evaluator.evaluate(session.actor, saved.scales.observations)
            ]
    assert again == [row.episode_return for row in finished.log.evaluations[-2:]]


def test_run_facts_say_what_was_really_used(tmp_path: Path) -> None:
    trained(job(cpu_threads=1), tmp_path)
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["job"]["batch_size"] == facts["actual_batch"] == 200
    assert (facts["device"], facts["vector_mode"], facts["torch_threads"]) == ("cpu", "sync", 1)
    assert facts["software"]["packages"]["torch"] == torch.__version__
    assert len(facts["software"]["code_digest"]) == 12
    assert facts["started"] <= facts["ended"]


def test_the_record_has_the_variables_that_the_run_itself_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a second look from the same process would differ from the record."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that what the run sets is taken back
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    software = trained(job(deterministic="always"), tmp_path).facts.software
    assert software.environment_variables["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert software == describe_software()


def test_without_a_terminal_lines_are_plain_and_few(tmp_path: Path) -> None:
    stream = io.StringIO()
    train(job(), tmp_path, Progress(stream), "test", None)
    text = stream.getvalue()
    assert "\r" not in text
    assert text.startswith(
        "ppo on Pendulum-v1: device cpu, num_envs 2, vector mode sync, 1 CPU thread, "
        "batch size 200, seed 0\n"
    )
    assert text.count("\n") == 1
