"""Environments in which one number is not finite. `import faults` registers them.

`faults:NAME-v0` is healthy up to step 119 and faulty at step 120 of each environment. Episodes have
50 steps, so that one evaluation sees nothing of it. An action of exactly 1/2 brings the fault too.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from probes import Probe

AT = 120
FAULTS: dict[str, tuple[str, float]] = {
    "RewardNan": ("reward", np.nan),
    "RewardInf": ("reward", np.inf),
    "ObservationNan": ("observation", np.nan),
    "ObservationInf": ("observation", -np.inf),
    "Final": ("final observation", np.nan),
    "First": ("observation", np.inf),
}
"""By name: what is wrong, as a message calls it, and the number."""


class Faulty(Probe):
    """Gives the number of its fault; the last two end an episode to do so."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.number = np.array([FAULTS[fault][1]], np.float32)
        self.wrong = False

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(**options)
        return self.number if self.wrong and self.fault == "First" else observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *_ = super().step(action)
        self.wrong = self.total == AT or action[0] == 0.5
        if self.wrong and self.fault.startswith("Reward"):
            reward = float(self.number[0])
        if self.wrong and self.fault in {"ObservationNan", "ObservationInf", "Final"}:
            observation = self.number
        return observation, reward, self.wrong and self.fault in {"Final", "First"}, False, {}


for name in FAULTS:
    gym.register(f"{name}-v0", "faults:Faulty", max_episode_steps=50, kwargs={"fault": name})
