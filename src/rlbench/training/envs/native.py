"""Classic-control dynamics for N environments at once, as pure functions of arrays.

In:      states [S, N] (float64, a row per quantity) and actions.
Out:     next states, rewards [N], deaths [N]; observations [N, O], float32.
Source:  gymnasium.envs.classic_control (Gymnasium 1.4); bit for bit the same episodes, so the order
         of operations and the precision of each are Gymnasium's, also where they look odd.

NumPy calls them, and `torch.compile` reads them: what it makes of them is the same up to float
rounding, on the device of the tensors. So no step may depend on a value of an array, except where
`compiled()` gives another way.
"""

import math
from typing import Any, Protocol

import numpy as np

Arrays = np.ndarray
Bound = float | np.floating[Any] | Arrays


class Dynamics(Protocol):
    """One environment's equations."""

    def starts(self, generator: np.random.Generator, count: int) -> Arrays:
        """The next first states, [S, count], drawn as Gymnasium draws one after the other."""
        ...

    def step(self, state: Arrays, actions: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """Next states [S, N], rewards [N] and deaths [N] of actions [N, A] or [N]."""
        ...

    def observe(self, state: Arrays) -> Arrays:
        """Observations [N, O], float32, of states [S, N]."""
        ...


class Pendulum:
    """State: angle from upright (rad), speed (rad/s)."""

    def starts(self, generator: np.random.Generator, count: int) -> Arrays:
        """Angle uniform in [-pi, pi], speed in [-1, 1]."""
        high = np.array([np.pi, 1.0])
        return generator.uniform(-high, high, size=(count, 2)).T

    def step(self, state: Arrays, actions: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """Torque in [-2, 2], 0.05 s; cost angle^2 + 0.1 speed^2 + 0.001 torque^2."""
        angle, speed = state
        torque = _within(actions[:, 0], -2.0, 2.0)
        upright = ((angle + np.pi) % (2 * np.pi)) - np.pi
        cost = _squared(upright) + 0.1 * _squared(speed) + 0.001 * _squared(torque)
        speed = _within(speed + (15.0 * np.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        return np.array([angle + speed * 0.05, speed]), -cost, np.zeros_like(cost, np.bool_)

    def observe(self, state: Arrays) -> Arrays:
        """Cosine, sine, speed."""
        angle, speed = state
        return np.array([np.cos(angle), np.sin(angle), speed], np.float32).T


class CartPole:
    """State: position (m), speed (m/s), angle (rad), angular speed (rad/s)."""

    def starts(self, generator: np.random.Generator, count: int) -> Arrays:
        """Everything uniform in [-0.05, 0.05]."""
        return generator.uniform(-0.05, 0.05, size=(count, 4)).T

    def step(self, state: Arrays, actions: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """Push of 10 N left or right, 0.02 s; reward 1; death beyond 2.4 m or 12 degrees."""
        x, x_dot, theta, theta_dot = state
        force = np.where(actions == 1, 10.0, -10.0)
        cosine, sine = np.cos(theta), np.sin(theta)
        mass, pole = 0.1 + 1.0, 0.1 * 0.5
        temp = (force + pole * np.square(theta_dot) * sine) / mass
        theta_acc = (9.8 * sine - cosine * temp) / (
            0.5 * (4.0 / 3.0 - 0.1 * np.square(cosine) / mass)
        )
        x_acc = temp - pole * theta_acc * cosine / mass
        x, x_dot = x + 0.02 * x_dot, x_dot + 0.02 * x_acc
        theta, theta_dot = theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc
        died = (np.abs(x) > 2.4) | (np.abs(theta) > 12 * 2 * math.pi / 360)
        return np.array([x, x_dot, theta, theta_dot]), np.ones_like(x), died

    def observe(self, state: Arrays) -> Arrays:
        """The state itself."""
        return state.T.astype(np.float32)


class MountainCarContinuous:
    """State: position, velocity, and whether the episode is fresh.

    Gymnasium keeps the first state in float64 and every later one in float32.
    """

    def starts(self, generator: np.random.Generator, count: int) -> Arrays:
        """Position uniform in [-0.6, -0.4], at rest."""
        positions = generator.uniform(-0.6, -0.4, size=count)
        return np.stack([positions, np.zeros(count), np.ones(count)])

    def step(self, state: Arrays, actions: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """Force in [-1, 1]; reward 100 at the goal, minus 0.1 force^2."""
        position, velocity, fresh = state
        narrow_position, narrow_velocity = position.astype(np.float32), velocity.astype(np.float32)
        angle = np.where(fresh > 0, 3 * position, 3 * narrow_position)
        force = actions[:, 0]
        push = _within(force, -1.0, 1.0) * 0.0015 - (0.0025 * np.cos(angle)).astype(np.float32)
        velocity = np.where(fresh > 0, velocity + push, narrow_velocity + push)
        limit = np.where(fresh > 0, 0.07, np.float32(0.07))
        velocity = _within(velocity, -limit, limit)
        position = np.where(
            fresh > 0, position + velocity, narrow_position + velocity.astype(np.float32)
        )
        low, high = np.float32(-1.2), np.float32(0.6)
        position = _within(position, low, high)
        velocity = np.where((position == low) & (velocity < 0), 0.0, velocity)
        arrived = (position >= np.float32(0.45)) & (velocity >= 0)
        reward = np.where(arrived, 100.0, 0.0) - force.astype(np.float64) ** 2 * 0.1
        narrowed = np.array([position, velocity]).astype(np.float32).astype(np.float64)
        return np.array([*narrowed, np.zeros_like(fresh)]), reward, arrived

    def observe(self, state: Arrays) -> Arrays:
        """Position and velocity."""
        return state[:2].T.astype(np.float32)


class Acrobot:
    """State: two angles (rad), two speeds (rad/s), and whether the episode is fresh.

    Gymnasium keeps the first state in float32 and every later one in float64.
    """

    def starts(self, generator: np.random.Generator, count: int) -> Arrays:
        """Everything uniform in [-0.1, 0.1]."""
        drawn = generator.uniform(-0.1, 0.1, size=(count, 4)).astype(np.float32)
        return np.concatenate([drawn.T.astype(np.float64), np.ones((1, count))])

    def step(self, state: Arrays, actions: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """Torque -1, 0 or 1, one Runge-Kutta step of 0.2 s; reward -1 until the tip is up."""
        torque = actions - 1.0
        y = state[:4]
        k1 = self._derivative(y, torque)
        k2 = self._derivative(y + 0.1 * k1, torque)
        k3 = self._derivative(y + 0.1 * k2, torque)
        k4 = self._derivative(y + 0.2 * k3, torque)
        y = y + 0.2 / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
        first, second = _wrapped(y[0]), _wrapped(y[1])
        speeds = _within(y[2], -4 * np.pi, 4 * np.pi), _within(y[3], -9 * np.pi, 9 * np.pi)
        up = -np.cos(first) - np.cos(second + first) > 1.0
        following = np.array([first, second, *speeds, np.zeros_like(first)])
        return following, np.where(up, 0.0, -1.0), up

    def observe(self, state: Arrays) -> Arrays:
        """Cosine and sine of both angles, and both speeds."""
        wide, fresh = self._columns(state[:4]), state[4] > 0
        if not compiled() and not fresh.any():
            return wide
        narrow = self._columns(state[:4].astype(np.float32))
        return np.where(fresh[:, None], narrow, wide)

    @staticmethod
    def _columns(s: Arrays) -> Arrays:
        columns = [np.cos(s[0]), np.sin(s[0]), np.cos(s[1]), np.sin(s[1]), s[2], s[3]]
        return np.array(columns, np.float32).T

    @staticmethod
    def _derivative(y: Arrays, torque: Arrays) -> Arrays:
        """Speeds and accelerations; the equations of Sutton and Barto's book."""
        theta1, theta2, dtheta1, dtheta2 = y
        sine, cosine = np.sin(theta2), np.cos(theta2)
        d1 = 0.25 + (1.25 + cosine) + 1.0 + 1.0
        d2 = (0.25 + 0.5 * cosine) + 1.0
        phi2 = 4.9 * np.cos(theta1 + theta2 - np.pi / 2.0)
        phi1 = (
            -0.5 * _squared(dtheta2) * sine
            - dtheta2 * dtheta1 * sine
            + 1.5 * 9.8 * np.cos(theta1 - np.pi / 2)
            + phi2
        )
        ddtheta2 = (torque + d2 / d1 * phi1 - 0.5 * _squared(dtheta1) * sine - phi2) / (
            0.25 + 1.0 - _squared(d2) / d1
        )
        ddtheta1 = -(d2 * ddtheta2 + phi1) / d1
        return np.array([dtheta1, dtheta2, ddtheta1, ddtheta2])


def compiled() -> bool:
    """Whether `torch.compile` reads these equations, rather than NumPy calling them."""
    import torch  # only here: whoever looks at an environment need not wait for it

    return torch.compiler.is_compiling()


def _within(x: Arrays, low: Bound, high: Bound) -> Arrays:
    """Clipped, as by np.clip, which takes three times as long for few numbers."""
    clipped: Arrays = np.minimum(np.maximum(x, low), high)
    return clipped


def _squared(x: Arrays) -> Arrays:
    """x^2 as `**` rounds it for a single number: by the C library's pow.

    That is now and then not x * x, nor what NumPy's vectorised power gives; in float32 only
    where x^2 lies almost halfway between two numbers.
    """
    squared: Arrays
    if compiled():
        squared = x * x
        return squared
    if x.dtype == np.float64:
        squared = np.float_power(x, 2.0)
        return squared
    exact = np.square(x, dtype=np.float64)
    squared = exact.astype(np.float32)
    off_half = np.abs(np.abs(exact - squared) / np.spacing(squared) - 0.5)
    for i in np.flatnonzero(off_half < 0.01):
        squared[i] = x[i] ** 2
    return squared


def _wrapped(angle: Arrays) -> Arrays:
    """Angles in [-pi, pi], by whole turns."""
    turn = np.pi - -np.pi
    if compiled():
        turned: Arrays = angle - turn * np.floor((angle + np.pi) / turn)
        return turned
    while (angle > np.pi).any():
        angle = np.where(angle > np.pi, angle - turn, angle)
    while (angle < -np.pi).any():
        angle = np.where(angle < -np.pi, angle + turn, angle)
    return angle


NATIVE: dict[str, tuple[str, Dynamics]] = {
    "Pendulum-v1": ("gymnasium.envs.classic_control.pendulum:PendulumEnv", Pendulum()),
    "CartPole-v1": ("gymnasium.envs.classic_control.cartpole:CartPoleEnv", CartPole()),
    "MountainCarContinuous-v0": (
        "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv",
        MountainCarContinuous(),
    ),
    "Acrobot-v1": ("gymnasium.envs.classic_control.acrobot:AcrobotEnv", Acrobot()),
}
"""Per id: the entry point whose equations these are, and the equations."""
