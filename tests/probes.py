"""Environments with a known answer. `import probes` registers them, as `probes:Name-v0` does."""

import time
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Probe(gym.Env[Any, Any]):
    """Observation: steps since the reset. Action: ignored. Reward 1, never terminates."""

    observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Box(-1, 1, (1,), np.float32)
    dtype: ClassVar[type] = np.float32

    def __init__(self) -> None:
        self.steps = 0
        self.total = 0

    def observe(self) -> Any:
        return np.array([self.steps], self.dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def reward(self, action: Any) -> float:
        return 1.0

    def terminated(self) -> bool:
        return False

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.total += 1
        return self.observe(), self.reward(action), self.terminated(), False, {}


class Dies3(Probe):
    """Terminates at its third step."""

    def terminated(self) -> bool:
        return self.steps == 3


class Nan100(Probe):
    """The reward of step 100 is NaN."""

    def reward(self, action: Any) -> float:
        return float("nan") if self.total == 100 else 1.0


class NanObservation(Probe):
    """The fifth observation is infinite."""

    def observe(self) -> Any:
        return np.array([np.inf if self.total == 5 else 0.0], np.float32)


class Raise50(Probe):
    """Raises at step 50."""

    def reward(self, action: Any) -> float:
        if self.total == 50:
            raise ValueError("the probe's own words")
        return 1.0


class Hang50(Probe):
    """Sleeps for ever at step 50."""

    def reward(self, action: Any) -> float:
        if self.total == 50:
            time.sleep(3600)
        return 1.0


class Exit50(Probe):
    """Ends its process at step 50."""

    def reward(self, action: Any) -> float:
        if self.total == 50:
            import os

            os._exit(9)
        return 1.0


class Slow(Probe):
    """A step takes 2 ms: worth a process of its own."""

    def reward(self, action: Any) -> float:
        time.sleep(0.002)
        return 1.0


class DictObs(Probe):
    """Observations that no policy here reads."""

    observation_space = spaces.Dict({"x": spaces.Box(-1, 1, (1,))})

    def observe(self) -> Any:
        return {"x": np.zeros(1, np.float32)}


class F64(Probe):
    """float64 observations of shape [2, 3]; the action comes back as the reward."""

    observation_space = spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
    action_space = spaces.Box(np.array([-1, -0.5], "f4"), np.array([2, 0.5], "f4"))

    def observe(self) -> Any:
        return np.arange(6, dtype=np.float64).reshape(2, 3) + self.steps

    def reward(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return float(action[0])


class Echo(Probe):
    """The observation is the first draw of the environment's generator."""

    def observe(self) -> Any:
        return np.array([self.np_random.random()], np.float32)


class InPlace(Probe):
    """Gives the same array each time and writes into it, as some simulators do."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = np.zeros(1, np.float32)

    def observe(self) -> Any:
        self._buffer[0] = self.steps
        return self._buffer


class Drawn(Probe):
    """Draws its steps as the brightness of a small picture, ten frames a second."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.full((16, 24, 3), 50 * self.steps, np.uint8)


class Target(Probe):
    """One step; reward -(a - 0.5)^2, best at 0.5."""

    def reward(self, action: Any) -> float:
        return -float((action[0] - 0.5) ** 2)

    def terminated(self) -> bool:
        return True


class Bandit(Probe):
    """One step; of three arms the last pays 1, the others 0."""

    action_space = spaces.Discrete(3, start=5)

    def reward(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return float(action == 7)

    def terminated(self) -> bool:
        return True


class Signal(Probe):
    """One step; the observation is -1 or 1, and the arm of the same sign pays 1."""

    action_space = spaces.Discrete(2)

    def observe(self) -> Any:
        if self.steps == 0:
            self.sign = 1 if self.np_random.random() < 0.5 else -1
        return np.array([self.sign], np.float32)

    def reward(self, action: Any) -> float:
        return float((action == 1) == (self.sign == 1))

    def terminated(self) -> bool:
        return True


class Rooms(Probe):
    """One step; one of three rooms is observed by its number, and the arm of that room pays 1."""

    observation_space = spaces.Discrete(3, start=2)
    action_space = spaces.Discrete(3)

    def observe(self) -> Any:
        if self.steps == 0:
            self.room = self.np_random.integers(2, 5)
        return self.room

    def reward(self, action: Any) -> float:
        return float(action == self.room - 2)

    def terminated(self) -> bool:
        return True


class Corridor(Probe):
    """Five cells from 3; each step goes one further, and the episode ends in the last one."""

    observation_space = spaces.Discrete(5, start=3)

    def observe(self) -> Any:
        return np.int64(3 + self.steps)

    def terminated(self) -> bool:
        return self.steps == 4


class Lock(Probe):
    """One step; a combination of four wheels, each of which pays 1/4 where it is right."""

    action_space = spaces.MultiDiscrete(
        np.array([[2, 4], [3, 2]]), start=np.array([[0, -1], [5, 0]])
    )

    def reward(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return float(np.mean(action == [[1, 2], [6, 0]]))

    def terminated(self) -> bool:
        return True


class Switches(Probe):
    """One step; six switches, each of which pays 1/6 where it is right."""

    action_space = spaces.MultiBinary((2, 3))

    def reward(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return float(np.mean(action == [[1, 0, 0], [1, 1, 0]]))

    def terminated(self) -> bool:
        return True


class Valve(Probe):
    """One step; from 100 to 300, best at 250, the distance in hundreds."""

    action_space = spaces.Box(100, 300, (1,), np.float32)

    def reward(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return -float(((action[0] - 250) / 100) ** 2)

    def terminated(self) -> bool:
        return True


LIMITS: dict[str, tuple[type[Probe], int]] = {
    "Fixed3": (Probe, 3),
    "Inf50": (Probe, 50),
    "Dies3": (Dies3, 50),
    "InPlace": (InPlace, 3),
    "Drawn": (Drawn, 3),
}
FAULTY = (Nan100, NanObservation, Raise50, Hang50, Exit50, Slow, DictObs)
SOUND = (F64, Echo, Target, Bandit, Signal, Rooms, Corridor, Lock, Switches, Valve)

LIMITS |= {probe.__name__: (probe, 200) for probe in (*FAULTY, *SOUND)}

for name, (probe, limit) in LIMITS.items():
    gym.register(f"{name}-v0", f"probes:{probe.__name__}", max_episode_steps=limit)
