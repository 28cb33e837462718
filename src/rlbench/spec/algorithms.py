"""The settings of every algorithm, each field with its meaning, symbol, range and source.

A new algorithm adds its settings here and to `AnyAlgorithm`, its learner to
`rlbench.training.algorithms`.
"""

import math
from typing import Annotated, Literal, get_args

from pydantic import Field

from rlbench.spec.settings import Settings

Whole = Annotated[int, Field(strict=True, lt=2**63)]
"""A whole number that a file can hold; `yes` and `1.0` are none."""
Count = Annotated[Whole, Field(gt=0)]
Rate = Annotated[float, Field(gt=0)]


class OnPolicy(Settings):
    """What all on-policy actor-critic algorithms here share."""

    name: str
    """Which algorithm these settings are for."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Discount factor, no unit; the horizon is about 1 / (1 - gamma) steps. Usual 0.9-0.999."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Lambda of generalised advantage estimation (arXiv:1506.02438): 0 one-step, 1 Monte Carlo."""
    advantage_norm: Literal["batch", "minibatch", "none"] = "batch"
    """Over which samples advantages are standardised to mean 0 and deviation 1."""
    reward_scale: Rate = 1.0
    """Factor on the rewards that the learner sees, no unit; reported returns are always raw."""
    observation_norm: Literal["none", "running"] = "none"
    """Observations as they are, or to mean 0 and deviation 1 of all those acted on so far, clipped
    at 10; one statistic for all environments, saved with the policy."""
    reward_norm: Literal["none", "returns"] = "none"
    """Rewards as they are, or divided by the deviation of the discounted returns so far, clipped at
    10; reward_scale multiplies after it."""
    hidden_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (128, 128)
    """Units per hidden layer, of the actor and of the critic."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Activation between the layers."""
    action_mean: Literal["free", "scaled", "bounded"] = "bounded"
    """Mean of a Gaussian policy from the network's output y: y itself, y scaled by the action
    bounds, or tanh(y) scaled by the action bounds (a dimension without bounds uses y)."""
    action_std: Literal["global", "state"] = "global"
    """Deviation of a Gaussian policy: one learned vector, or an output of the network."""
    log_std_init: Annotated[float, Field(ge=-5, le=3)] = 0.0
    """Initial log of the policy's deviation, in the units of the action. Usual -1 to 0."""

    def steps_per_batch(self, batch_size: int) -> int:  # noqa: ARG002 (for those that override it)
        """Minibatch gradient steps of the policy per batch; 0 where there are none."""
        return 0


class PPO(OnPolicy):
    """Clipped-surrogate proximal policy optimisation; Schulman et al. 2017, arXiv:1707.06347."""

    name: Literal["ppo"] = "ppo"
    """Which algorithm these settings are for."""
    clip_range: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Epsilon of eq. 7: how far the probability ratio may move from 1, no unit. Usual 0.1-0.3."""
    epochs: Count = 10
    """K: passes over one batch. Usual 3-30."""
    minibatch_size: Count = 64
    """Samples per gradient step, at most a batch; the last minibatch of an epoch may be smaller."""
    actor_learning_rate: Rate = 3e-4
    """Adam step size of the actor. Usual 1e-4 to 1e-3."""
    critic_learning_rate: Rate = 1e-3
    """Adam step size of the critic. Usual 3e-4 to 1e-3."""
    learning_rate_schedule: Literal["constant", "linear"] = "constant"
    """Both step sizes over the run: constant, or linearly to 0 at the end of the budget."""
    max_grad_norm: Rate = 0.5
    """Largest Euclidean norm of the gradient, of actor and critic each."""
    entropy_coefficient: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the policy's entropy (nats) in the objective. Usual 0-0.01."""

    def steps_per_batch(self, batch_size: int) -> int:
        """K epochs of so many minibatches, the last of each as small as it comes."""
        return self.epochs * math.ceil(batch_size / self.minibatch_size)


class TRPO(OnPolicy):
    """Trust-region policy optimisation; Schulman et al. 2015, arXiv:1502.05477."""

    name: Literal["trpo"] = "trpo"
    """Which algorithm these settings are for."""
    advantage_norm: Literal["batch", "none"] = "batch"
    """Over which samples advantages are standardised to mean 0 and deviation 1."""
    max_kl: Rate = 0.01
    """Delta: largest mean KL divergence (nats) from the old policy to the new. Usual 0.001-0.05."""
    damping: Annotated[float, Field(ge=0)] = 0.1
    """Multiple of the identity added to the Fisher matrix, no unit. Usual 0.001-0.1."""
    cg_iterations: Count = 10
    """Most conjugate-gradient iterations per update."""
    cg_tolerance: Annotated[float, Field(ge=0)] = 1e-10
    """Squared residual norm at which conjugate gradients stop early."""
    line_search_steps: Count = 10
    """Step lengths tried before the update is given up."""
    line_search_shrink: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Factor between the step lengths tried."""
    critic_epochs: Count = 40
    """Passes of the critic over one batch."""
    critic_minibatch_size: Annotated[int, Field(ge=0)] = 0
    """Samples per gradient step of the critic; 0 is the whole batch."""
    critic_learning_rate: Rate = 1e-3
    """Adam step size of the critic. Usual 3e-4 to 1e-3."""


AnyAlgorithm = Annotated[PPO | TRPO, Field(discriminator="name")]
ALGORITHMS: dict[str, type[PPO] | type[TRPO]] = {
    model.model_fields["name"].default: model for model in get_args(get_args(AnyAlgorithm)[0])
}
"""Settings class of each algorithm by name."""
