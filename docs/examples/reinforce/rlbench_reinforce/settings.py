"""Settings; light, since every command of rlbench imports them."""

from typing import ClassVar, Literal

from rlbench.spec.algorithms import OnPolicy, Rate


class Reinforce(OnPolicy):
    """REINFORCE with a baseline; Williams 1992, Machine Learning 8."""

    learner: ClassVar[str] = "rlbench_reinforce.learner:ReinforceLearner"

    name: Literal["reinforce"] = "reinforce"
    """Which algorithm these settings are for."""
    learning_rate: Rate = 0.01
    """Adam step size."""
