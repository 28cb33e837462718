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
from gymnasium.vector import SyncVectorEnv

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

    def torque_values(self) -> Array:
        """The torques, [U]."""
        return np.linspace(-TOP_TORQUE, TOP_TORQUE, self.torques)

    def mixture(self, angle: Array, speed: Array) -> "Mixture":
        """Any states as mixtures of grid points; the angle goes around the circle."""
        row = (angle + np.pi) % (2 * np.pi) / (2 * np.pi) * self.angles
        column = (speed + TOP_SPEED) / (2 * TOP_SPEED) * (self.speeds - 1)
        top, left = row.astype(int), np.minimum(column.astype(int), self.speeds - 2)
        down, right = row - top, column - left
        first, second = top % self.angles * self.speeds, (top + 1) % self.angles * self.speeds
        return Mixture(
            np.stack([first + left, first + left + 1, second + left, second + left + 1]),
            np.stack(
                [(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right]
            ),
        )


@dataclass(frozen=True, slots=True)
class Mixture:
    """States between the four grid points around each."""

    corners: Array  # [4, ...], index into the flattened grid
    weights: Array  # [4, ...], sum 1

    def of(self, values: Array) -> Array:
        """Values [A, S] at these states: bilinear interpolation."""
        found: Array = np.einsum("k...,k...->...", self.weights, values.ravel()[self.corners])
        return found


def step(angle: Array, speed: Array, torque: float | Array) -> tuple[Array, Array, Array]:
    """Reward of a torque in a state, and the state 0.05 s later, as Gymnasium has it."""
    upright = (angle + np.pi) % (2 * np.pi) - np.pi
    reward = -(upright**2 + 0.1 * speed**2 + 0.001 * torque**2)
    speed = np.clip(speed + (15 * np.sin(angle) + 3 * torque) * 0.05, -TOP_SPEED, TOP_SPEED)
    return reward, angle + speed * 0.05, speed


def choices(grid: Grid, angle: Array, speed: Array) -> list[tuple[Array, Mixture]]:
    """For each torque: the reward in each state, and the states that follow."""
    moves = [step(angle, speed, torque) for torque in grid.torque_values()]
    return [(reward, grid.mixture(*following)) for reward, *following in moves]


def action_values(moves: list[tuple[Array, Mixture]], following: Array) -> Array:
    """r(s, u) + V_{t+1}(f(s, u)) for each torque, [U, ...]; `following` is V_{t+1}, [A, S]."""
    return np.stack([reward + states.of(following) for reward, states in moves])


def optimal_values(grid: Grid, steps: int = STEPS) -> Array:
    """V_t of every grid point for t = 0 ... steps, [steps + 1, A, S], float32."""
    moves = choices(grid, *grid.states())
    now = np.zeros((grid.angles, grid.speeds))
    table = np.zeros((steps + 1, *now.shape), np.float32)
    for t in reversed(range(steps)):
        now = action_values(moves, now).max(0)
        table[t] = now
    return table


def greedy_torque(grid: Grid, following: Array, angle: Array, speed: Array) -> Array:
    """The torque that is best in each state if `following` [A, S] are the values after it."""
    best: Array = action_values(choices(grid, angle, speed), following).argmax(0)
    return grid.torque_values().take(best)


def expected_optimum(grid: Grid, first: Array) -> float:
    """Mean of V_0 over start states: angle uniform on the circle, speed uniform in [-1, 1]."""
    angle = grid.states()[0][:, :1]  # [A, 1]
    speed = (np.arange(200) + 0.5) / 100 - 1  # midpoints
    return float(grid.mixture(*np.broadcast_arrays(angle, speed)).of(first).mean())


def start_states() -> tuple[Array, Array]:
    """Angle and speed of the fixed start states, [1000] each."""
    env = gym.make("Pendulum-v1")
    states = []
    for seed in START_SEEDS:
        env.reset(seed=seed)
        states.append(env.get_wrapper_attr("state"))
    env.close()
    angle, speed = np.array(states).T
    return angle, speed


def greedy_returns(grid: Grid, table: Array) -> Array:
    """Returns of the greedy policy in Gymnasium's environment, from each fixed start, [1000]."""
    envs = SyncVectorEnv([lambda: gym.make("Pendulum-v1") for _ in START_SEEDS])
    envs.reset(seed=list(START_SEEDS))
    returns = np.zeros(envs.num_envs)
    for following in table[1:]:
        angle, speed = np.array(envs.get_attr("state")).T
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
    optimal = grid.mixture(angle, speed).of(table[0])
    print(f"grid {angles} x {speeds} x {torques}, {STEPS} steps, undiscounted")
    print(f"expected optimum over all start states:    {expected_optimum(grid, table[0]):.2f}")
    print(f"mean optimum of the fixed start states:    {optimal.mean():.2f}")
    print(f"mean return there of the greedy policy:    {greedy_returns(grid, table).mean():.2f}")
    if output is not None:
        starts = pd.DataFrame({"seed": START_SEEDS, "angle": angle, "speed": speed})
        rows = starts.assign(optimal_return=optimal).to_csv(index=False, float_format="%.6f")
        write_whole(output, rows.encode())


if __name__ == "__main__":
    tyro.cli(main)
