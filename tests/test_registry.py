"""Algorithms from other packages: the example of the documentation, installed and run."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rlbench.records import UpdateRow, read_facts, read_rows
from rlbench.spec.registry import ALGORITHMS, GROUP, brought

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "reinforce"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has the example."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), str(EXAMPLE)], check=True)
    return os.environ | {"PYTHONPATH": str(target)}


def rlbench(installed: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from rlbench.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=installed, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_example_trains_and_its_settings_are_flags(
    installed: dict[str, str], tmp_path: Path
) -> None:
    done = rlbench(
        installed, "train", "--algorithm", "reinforce", "--learning-rate", "0.02",
        "--env-name", "CartPole-v1", "--total-steps", "1000", "--batch-size", "500",
        "--eval-episodes", "2", "--cpu-threads", "1", "--output-dir", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code = (
        "import sys; from pathlib import Path; from rlbench.records import read_facts;"
        "facts = read_facts(Path(sys.argv[1])); print(facts.job.algorithm.learning_rate,"
        "facts.software.packages['rlbench-reinforce'], 'torch' in sys.modules)"
    )
    read = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=installed, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert read.stdout.split() == ["0.02", "0.1.0", "False"]
    assert len(read_rows(UpdateRow, tmp_path)) == 2


def test_the_example_is_a_cell_of_a_grid(installed: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "name: small\nalgorithms: [reinforce, ppo]\nenvironments: [CartPole-v1]\nnum_envs: [2]\n"
        "devices: [cpu]\nseeds: [0]\ntotal_steps: 1000\n"
        "hyperparameters: {reinforce: {learning_rate: 0.5}}\n"
    )
    done = rlbench(installed, "show-job", str(config), "reinforce/CartPole-v1/2/cpu/0")
    assert done.returncode == 0, done.stderr
    assert "0.5" in done.stdout


def test_without_the_package_the_name_is_unknown() -> None:
    assert "reinforce" not in ALGORITHMS
    done = rlbench(dict(os.environ), "train", "--algorithm", "reinforce")
    assert done.returncode == 2
    assert "got algorithm 'reinforce'; allowed: ppo, " in done.stderr


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_package:Settings", "ModuleNotFoundError"),
        ("rlbench.spec.algorithms:OnPolicy", "one Literal as its name, and a learner"),
        ("rlbench.spec.algorithms:math", "AttributeError"),
    ],
)
def test_an_entry_point_that_is_none_is_left_out_with_a_reason(value: str, reason: str) -> None:
    with pytest.warns(UserWarning, match=f"algorithm 'odd' .* is left out: .*{reason}"):
        assert brought(EntryPoint("odd", value, GROUP)) is None


def test_a_run_of_an_unknown_algorithm_says_so(tmp_path: Path) -> None:
    """Facts that were written where a package was installed, read where it is not."""
    from jobs import job, trained
    from rlbench.errors import InputError

    trained(job(), tmp_path)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace('"name": "ppo"', '"name": "reinforce"'))
    with pytest.raises(InputError, match="reinforce"):
        read_facts(tmp_path)
