"""Between what a return lies: that of uniformly random actions, and the best one where it is known.

In:      the environments to measure anew; by default all.
Out:     docs/reference/reference_points.csv, a row per environment, the others as they were.

A mean over `EPISODES` episodes in Gymnasium's own environments, with its standard error. The seed
is fixed: start states, the environments' own noise and the actions are the same each time.
"""

from pathlib import Path
from typing import Annotated

import gymnasium as gym
import numpy as np
import pandas as pd
import tyro

from rlbench.records import write_whole

OUTPUT = Path(__file__).parents[1] / "docs" / "reference" / "reference_points.csv"
EPISODES = 1000
SEED = 0
BEST: dict[str, tuple[float, str]] = {
    "Pendulum-v1": (-137.46, "expected optimum, benchmarks/pendulum_optimum.py"),
    "CartPole-v1": (500.0, "by construction: reward 1 in each of 500 steps"),
    "Acrobot-v1": (np.nan, ""),
    "MountainCarContinuous-v0": (100.0, "by construction: a bound, not reached with any force"),
    "LunarLander-v3": (np.nan, ""),
    "HalfCheetah-v5": (np.nan, ""),
    "Hopper-v5": (np.nan, ""),
    "BipedalWalker-v3": (np.nan, ""),
}
"""Per environment, the best possible return and how it is known; NaN where it is not."""


def random_returns(environment: str, episodes: int = EPISODES, seed: int = SEED) -> np.ndarray:
    """Undiscounted returns of episodes under uniformly random actions."""
    env = gym.make(environment)
    env.action_space.seed(seed)
    env.reset(seed=seed)
    returns = np.array([_one_return(env) for _ in range(episodes)])
    env.close()
    return returns


def point(environment: str) -> dict[str, object]:
    """The row of one environment."""
    returns = random_returns(environment)
    best, how = BEST[environment]
    spec = gym.spec(environment)
    return {
        "environment": environment,
        "random_return": round(returns.mean(), 3),
        "standard_error": round(returns.std(ddof=1) / np.sqrt(len(returns)), 3),
        "episodes": len(returns),
        "solved_at": spec.reward_threshold,  # as Gymnasium registers it
        "best_return": best,
        "best_is": how,
    }


def main(environments: Annotated[tuple[str, ...], tyro.conf.Positional] = tuple(BEST)) -> None:
    """Measure environments one after the other; each row is written as soon as it is known."""
    for environment in environments:
        row = point(environment)
        print(row)
        write_point(row, OUTPUT)


def write_point(row: dict[str, object], path: Path) -> None:
    """Put a row into the table at a path, in the order of BEST, over an older one."""
    new = pd.DataFrame([row]).set_index("environment")
    if path.is_file():
        old = pd.read_csv(path, index_col="environment")
        new = pd.concat([old.drop(new.index, errors="ignore"), new])
    write_whole(
        path, new.sort_index(key=lambda names: names.map(list(BEST).index)).to_csv().encode()
    )


def _one_return(env: gym.Env[object, object]) -> float:
    env.reset()
    total, ended = 0.0, False
    while not ended:
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        total += float(reward)
        ended = terminated or truncated
    return total


if __name__ == "__main__":
    tyro.cli(main)
