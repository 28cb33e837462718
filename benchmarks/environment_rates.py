"""Environment steps per second of each vector mode, the checks of `Environments` included.

Interleaved, one process, actions drawn ahead: `python benchmarks/environment_rates.py [ID...]`.
`async` and `envpool` may use every core; the others use one.
"""

import sys
from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from interleaved import Arm, in_turns
from rlbench.errors import InputError
from rlbench.spec.job import VectorMode
from rlbench.training.envs.spaces import Continuous
from rlbench.training.envs.vector import Environments

ROUNDS = 5
STEPS = 20_000
"""Environment steps per turn, at most; never fewer than 20 of each environment."""
COUNTS = (8, 64, 1024)
MODES: tuple[VectorMode, ...] = ("sync", "async", "native", "envpool")


def stepper(envs: Environments) -> Arm:
    """So many steps with random actions; seconds per environment step."""
    draw, action = np.random.default_rng(0), envs.spec.action
    turns = max(20, STEPS // envs.count)
    if isinstance(action, Continuous):
        actions: Any = draw.uniform(-1, 1, (turns, envs.count, action.size)).astype(np.float32)
    else:
        actions = np.stack([action.zeros(envs.count)] * turns)
    envs.reset()

    def arm() -> float:
        start = perf_counter()
        for chosen in actions:
            envs.step(chosen)
        return (perf_counter() - start) / (turns * envs.count)

    return arm


def main() -> None:
    """Print a row per environment and number of environments."""
    for environment in sys.argv[1:] or ("Pendulum-v1", "CartPole-v1", "HalfCheetah-v5"):
        for count in COUNTS:
            with ExitStack() as stack:
                arms: dict[str, Arm] = {}
                for mode in MODES:
                    if mode == "async" and count > 64:
                        continue  # a process each
                    try:
                        envs = Environments(environment, mode, list(range(count)))
                    except InputError:
                        continue  # this mode does not have it
                    arms[mode] = stepper(stack.enter_context(envs))
                seconds = in_turns(arms, ROUNDS)
            rates = {mode: 1 / median(values) for mode, values in seconds.items()}
            row = "  ".join(
                f"{mode} {rate:11,.0f} ({rate / rates['sync']:6.1f} x)"
                for mode, rate in rates.items()
            )
            print(f"{environment:<16} {count:5} environments  {row}", flush=True)


if __name__ == "__main__":
    main()
