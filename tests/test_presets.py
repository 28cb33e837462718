import pytest

from rlbench.errors import InputError
from rlbench.spec.config import load_yaml
from rlbench.spec.presets import PRESETS, preset, resolve
from rlbench.spec.registry import ALGORITHMS

PAIRS = [(path.stem, env) for path in sorted(PRESETS.glob("*.yaml")) for env in load_yaml(path)]


@pytest.mark.parametrize(("algorithm", "environment"), PAIRS)
def test_every_preset_is_allowed_differs_from_the_defaults_and_has_sources(
    algorithm: str, environment: str
) -> None:
    settings, origins = resolve(algorithm, environment, {}, "test")
    default = ALGORITHMS[algorithm].model_validate({})
    for key, entry in preset(algorithm, environment).items():
        assert getattr(settings, key) != getattr(default, key), key
        assert len(entry.source) > 10
        assert origins[key] == f"preset: {entry.source}"


def test_there_is_a_preset_file_for_nothing_but_known_algorithms() -> None:
    assert {algorithm for algorithm, _ in PAIRS} <= set(ALGORITHMS)


def test_a_given_value_wins_and_says_so() -> None:
    settings, origins = resolve("ppo", "Pendulum-v1", {"gamma": 0.5}, "flags")
    assert (settings.gamma, origins["gamma"]) == (0.5, "flags")
    assert origins["gae_lambda"].startswith("preset: ")
    assert origins["clip_range"] == "default"


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(InputError, match=r"got algorithm 'sac'; allowed: ppo, ppo-kl"):
        resolve("sac", "Pendulum-v1", {}, "flags")


@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
def test_the_environments_that_people_publish_have_presets(algorithm: str) -> None:
    physics = ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Swimmer", "InvertedPendulum")
    published = {f"{name}-v5" for name in physics} | {
        "Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1", "Acrobot-v1",
        "LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3",
    }  # fmt: skip
    assert published <= {environment for name, environment in PAIRS if name == algorithm}
