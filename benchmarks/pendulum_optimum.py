"""The best possible return on Pendulum-v1, by dynamic programming backward over its 200 steps.

In:      the size of the grid: `python benchmarks/pendulum_optimum.py ANGLES SPEEDS TORQUES`.
Out:     printed: the expected optimum over the environment's start states; over 1,000 fixed start
         states, the mean optimum and what the policy that is greedy in these values really gets in
         Gymnasium's own environment. With `--output`: the optimum from each fixed start state.

    V_t(s) = max_u r(s, u) + V_{t+1}(f(s, u)),   V_200 = 0     Bellman 1957, undiscounted

The values are linear between grid points, so they are estimates; the greedy policy is a policy, so
its return bounds the optimum from below. A grid is fine enough once both agree.
"""

from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas as pd
import tyro
from scipy.ndimage import map_coordinates

from rlbench.records import write_whole

STEPS = 200
START_SEEDS = range(1000)
"""A fixed start state is what `gymnasium.make("Pendulum-v1").reset(seed=s)` gives."""
TOP_SPEED, TOP_TORQUE = 8.0, 2.0
Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Grid:
    """Number of angles around the circle, of speeds in [-8, 8], of torques in [-2, 2]."""

    angles: int
    speeds: int
    torques: int

    def states(self) -> tuple[Array, Array]:
        """Angle and speed of every grid point, [A, S] each."""
        angles = np.linspace(-np.pi, np.pi, self.angles, endpoint=False)
        angle, speed = np.meshgrid(
            angles, np.linspace(-TOP_SPEED, TOP_SPEED, self.speeds), indexing="ij"
        )
        return angle, speed

    def choices(self) -> Array:
        """The torques, [U]."""
        return np.linspace(-TOP_TORQUE, TOP_TORQUE, self.torques)

    def interpolate(self, values: Array, angle: Array, speed: Array) -> Array:
        """Values [A, S] at any states, linear in between and around the circle."""
        row = (angle + np.pi) % (2 * np.pi) / (2 * np.pi) * self.angles
        column = (speed + TOP_SPEED) / (2 * TOP_SPEED) * (self.speeds - 1)
        circle = np.concatenate([values, values[:1]])
        found: Array = map_coordinates(circle, [row, column], order=1, mode="nearest")
        return found


def step(angle: Array, speed: Array, torque: float | Array) -> tuple[Array, Array, Array]:
    """Reward of a torque in a state, and the state 0.05 s later, as Gymnasium has it."""
    upright = (angle + np.pi) % (2 * np.pi) - np.pi
    reward = -(upright**2 + 0.1 * speed**2 + 0.001 * torque**2)
    speed = np.clip(speed + (15 * np.sin(angle) + 3 * torque) * 0.05, -TOP_SPEED, TOP_SPEED)
    return reward, angle + speed * 0.05, speed


def optimal_values(grid: Grid, steps: int = STEPS) -> Array:
    """V_t of every grid point for t = 0 ... steps, [steps + 1, A, S], float32."""
    moves = [step(*grid.states(), torque) for torque in grid.choices()]
    now = np.zeros((grid.angles, grid.speeds))
    table = np.zeros((steps + 1, *now.shape), np.float32)
    for t in reversed(range(steps)):
        now = _action_values(grid, now, moves).max(0)
        table[t] = now
    return table


def greedy_torque(grid: Grid, following: Array, angle: Array, speed: Array) -> Array:
    """The torque that is best in each state if `following` [A, S] are the values after it."""
    moves = [step(angle, speed, torque) for torque in grid.choices()]
    return grid.choices()[_action_values(grid, following, moves).argmax(0)]


def expected_optimum(grid: Grid, first: Array) -> float:
    """Mean of V_0 over start states: angle uniform on the circle, speed uniform in [-1, 1]."""
    angle = grid.states()[0][:, :1]  # [A, 1]
    speed = (np.arange(200) + 0.5) / 100 - 1  # midpoints
    return float(grid.interpolate(first, *np.broadcast_arrays(angle, speed)).mean())


def start_states() -> tuple[Array, Array]:
    """Angle and speed of the fixed start states, [1000] each."""
    env = gym.make("Pendulum-v1")
    states = []
    for seed in START_SEEDS:
        env.reset(seed=seed)
        states.append(env.unwrapped.state)  # type: ignore[attr-defined] # Pendulum's own
    env.close()
    angle, speed = np.array(states).T
    return angle, speed


def greedy_returns(grid: Grid, table: Array) -> Array:
    """What the greedy policy gets from the fixed start states in Gymnasium's environment, [1000]."""
    seeds = list(START_SEEDS)
    envs = gym.make_vec("Pendulum-v1", len(seeds), vectorization_mode="sync")
    envs.reset(seed=seeds)
    returns = np.zeros(len(seeds))
    for following in table[1:]:
        angle, speed = np.array([env.unwrapped.state for env in envs.envs]).T  # type: ignore[attr-defined] # as above
        torque = greedy_torque(grid, following, angle, speed)
        returns += envs.step(torque[:, None].astype(np.float32))[1]
    envs.close()
    return returns


def main(
    angles: tyro.conf.Positional[int],
    speeds: tyro.conf.Positional[int],
    torques: tyro.conf.Positional[int],
    output: Path | None = None,
) -> None:
    """Print the optimum, and write that of each fixed start state."""
    grid = Grid(angles, speeds, torques)
    table = optimal_values(grid)
    angle, speed = start_states()
    optimal = grid.interpolate(table[0], angle, speed)
    print(f"grid {angles} x {speeds} x {torques}, {STEPS} steps, undiscounted")
    print(f"expected optimum over all start states:    {expected_optimum(grid, table[0]):.2f}")
    print(f"mean optimum of the fixed start states:    {optimal.mean():.2f}")
    print(f"mean return there of the greedy policy:    {greedy_returns(grid, table).mean():.2f}")
    if output is not None:
        starts = pd.DataFrame({"seed": START_SEEDS, "angle": angle, "speed": speed})
        rows = starts.assign(optimal_return=optimal).to_csv(index=False, float_format="%.6f")
        write_whole(output, rows.encode())


def _action_values(grid: Grid, following: Array, moves: list[tuple[Array, Array, Array]]) -> Array:
    """Reward plus value of the state after it, [U, ...], for each torque's move."""
    return np.stack([r + grid.interpolate(following, *after) for r, *after in moves])


if __name__ == "__main__":
    tyro.cli(main)
