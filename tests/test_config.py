"""Every user error in a config has one message: file, key, value, what is allowed."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from rlbench.errors import InputError
from rlbench.spec.config import Benchmark, load_benchmark, load_yaml
from rlbench.spec.grid import Devices
from rlbench.spec.plan import make_plan, named_devices

CPU_ONLY = Devices(present=("cpu",), missing={"cuda": "no driver"})
CONFIGS = Path(__file__).parents[1] / "config"
GOOD = """
name: tiny
environments: Pendulum-v1
num_envs: [1, 8]
seeds: [0, 1]
total_steps: 1000
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "c.yaml"
    path.write_text(text)
    return path


def load(folder: Path, extra: str) -> Benchmark:
    return load_benchmark(written(folder, GOOD + extra))


def test_a_single_value_stands_for_an_axis_of_one(tmp_path: Path) -> None:
    assert load(tmp_path, "devices: cpu").devices == ("cpu",)
    assert load(tmp_path, "").environments == ("Pendulum-v1",)


def test_numbers_are_numbers(tmp_path: Path) -> None:
    """PyYAML alone reads 1e-3 as text."""
    assert load_yaml(written(tmp_path, "a: 1e-3\nb: 2E5\nc: 1.5e2\nd: 3")) == {
        "a": 1e-3,
        "b": 2e5,
        "c": 150.0,
        "d": 3,
    }


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("seedz: [3]", "seedz: unknown key; did you mean 'seeds'? allowed: "),
        ("throughput: {update: 3}", "throughput.update: unknown key; did you mean 'updates'?"),
        ("batch_size: 0", "batch_size: got 0; input should be greater than 0"),
        ("batch_size: .inf", "batch_size: got inf; "),
        (
            "vector_mode: off",
            "vector_mode: got False; allowed: 'auto', 'sync', 'async', 'native', 'fused' or ",
        ),
        ("devices: [gpu]", "devices.0: got 'gpu'; allowed: 'auto', 'cpu' or 'cuda'"),
        ("algorithms: [ppo, trop]", "got algorithm 'trop'; allowed: ppo, ppo-kl, a2c, trpo, npg"),
        ("hyperparameters: {sac: {}}", "got algorithm 'sac'; allowed: ppo, ppo-kl, a2c, trpo, npg"),
        ("thresholds: {CartPole-v1: 1}", "thresholds: CartPole-v1 is not among the environments"),
        ("algorithms: [ppo, ppo]", "algorithms: each value once, but repeated: ppo"),
        ("algorithms: []", "algorithms: got []; "),
        ("seeds: [3]", "the key 'seeds' occurs twice"),
        ("? [a]\n: 3", "a key must be a word or a number"),
        ("cpu_threads: yes", "cpu_threads: got True; input should be a valid integer"),
        ("eval_episodes: 99999999999999999999", "eval_episodes: got 99999999999999999999; "),
        ("hyperparameters: {ppo: {clip_rang: 0.1}}", "clip_rang: unknown key; did you mean 'clip_"),
        ("hyperparameters: {trpo: {max_kl: -1}}", "max_kl: got -1; input should be greater than 0"),
        ("hyperparameters: {trpo: {advantage_norm: minibatch}}", "allowed: 'batch' or 'none'"),
        ("a: [", "not valid YAML: "),
    ],
)
def test_a_wrong_config_is_one_message(extra: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, extra)
    assert f"{tmp_path / 'c.yaml'}: " in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            "algorithms: trpo\nbatch_size: 4\nhyperparameters: {trpo: {critic_minibatch_size: 0}}",
            "num_envs 8 is more than batch_size 4",
        ),
        (
            "devices: [cuda]",
            "devices: got 'cuda', which cannot be used here: no driver. Available: cpu. Remove",
        ),
    ],
)
def test_an_impossible_cell_stops_the_plan(extra: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        make_plan(load(tmp_path, extra), CPU_ONLY, "c.yaml")
    assert message in str(error.value)


def test_devices_of_other_machines_must_be_named(tmp_path: Path) -> None:
    """A config without devices means `auto`, which only the machine itself can resolve."""
    named = named_devices(load(tmp_path, "devices: [cuda, cpu]"), "c.yaml")
    assert named == Devices(present=("cuda", "cpu"))
    for extra in ("", "devices: [cpu, auto]"):
        with pytest.raises(InputError, match=r"^c.yaml: devices: got 'auto'.*devices=cpu$"):
            named_devices(load(tmp_path, extra), "c.yaml")


def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.yaml: cannot be read \(No such file"):
        load_benchmark(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(InputError, match=r"latin.yaml: not UTF-8 text"):
        load_benchmark(tmp_path / "latin.yaml")
    with pytest.raises(InputError, match=r"got NoneType; must hold"):
        load_benchmark(written(tmp_path, ""))


def test_two_mistakes_are_two_lines(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, "batch_size: 0\ncpu_threads: x")
    assert str(error.value).count("\n") == 1


def test_settings_are_frozen(tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        load(tmp_path, "").total_steps = 3  # type: ignore[misc]


REFERENCE = sorted(path.stem for path in (CONFIGS / "reference").glob("*.yaml"))


@pytest.mark.parametrize(("name", "cells"), [("config", 30), ("smoke", 8)])
def test_the_shipped_configs_can_be_planned(name: str, cells: int) -> None:
    plan = make_plan(load_benchmark(CONFIGS / f"{name}.yaml"), CPU_ONLY, name)
    assert plan.left_out == {"cuda": "no driver"}
    assert len(plan.cells) == cells


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_configs_can_be_planned(name: str) -> None:
    benchmark = load_benchmark(CONFIGS / "reference" / f"{name}.yaml")
    assert make_plan(benchmark, CPU_ONLY, name).cells
    assert benchmark.name == f"reference-{name}"


def test_a_mapping_may_take_over_the_values_of_another(tmp_path: Path) -> None:
    """YAML's anchor and `<<`: taken over, then replaced; not a key that occurs twice."""
    path = tmp_path / "c.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert load_yaml(path) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}
