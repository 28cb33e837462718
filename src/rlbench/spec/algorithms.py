"""The settings of our own algorithms, each field with its meaning, symbol, range and source.

A new algorithm adds its settings here, and to the list in `registry`; they name its learner.
"""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rlbench.spec.settings import Settings

Whole = Annotated[int, Field(strict=True, lt=2**63)]
"""A whole number that a file can hold; `yes` and `1.0` are none."""
Count = Annotated[Whole, Field(gt=0)]
Rate = Annotated[float, Field(gt=0)]
Schedule = Literal["constant", "linear"]
ActionBounds = Literal["clip", "rescale"]


class OnPolicy(Settings):
    """What all on-policy actor-critic algorithms here share."""

    learner: ClassVar[str] = ""
    """`module:Class` of what learns with these settings, a `Learner`; imported when used."""
    agent: ClassVar[str] = ""
    """Instead of a learner: `module:Class` of an `Agent`, which gathers its own experience too."""
    always_finite: ClassVar[tuple[str, ...]] = (
        "surrogate", "critic_loss", "entropy_nats", "kl_nats", "actor_grad_norm",
        "critic_grad_norm",
    )  # fmt: skip
    """Metrics that it has, whatever the batch; a run stops where one is not finite."""

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
    """Initial log of the policy's deviation, in the units of the policy's action. Usual -1 to 0."""
    action_bounds: ActionBounds = "clip"
    """How a Gaussian policy's action is brought into its Box: clipped; or, in each dimension with
    two finite bounds, mapped from [-1, 1] to them and clipped."""
    noise_colour: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Beta of a Gaussian policy's exploration noise, whose power over the steps of a rollout is
    1 / f^beta (arXiv:2312.11091): 0 white, 1 pink, 2 red. Each action's distribution is the same
    for all. Usual 0-1."""

    def steps_per_batch(self, batch_size: int) -> int:  # noqa: ARG002 (for those that override it)
        """Minibatch gradient steps per batch, which can be compiled; 0 where there are none."""
        return 0


class FirstOrder(OnPolicy):
    """What algorithms share that take minibatch gradient steps of actor and critic together."""

    epochs: Count = 10
    """K: passes over one batch. Usual 3-30."""
    minibatch_size: Count = 64
    """Samples per gradient step, at most a batch; the last minibatch of an epoch may be smaller."""
    actor_learning_rate: Rate = 3e-4
    """Adam step size of the actor. Usual 1e-4 to 1e-3."""
    critic_learning_rate: Rate = 1e-3
    """Adam step size of the critic, if it has its own optimiser. Usual 3e-4 to 1e-3."""
    learning_rate_schedule: Schedule = "constant"
    """Step sizes over the run: constant, or linearly to 0 at the end of the budget."""
    optimiser: Literal["separate", "shared"] = "separate"
    """Actor and critic with a step size and a gradient limit each; or with the actor's step size
    and one limit on the gradient of both."""
    critic_coefficient: Rate = 0.5
    """Weight of the critic's error in the loss of a shared optimiser. Usual 0.5-1."""
    value_clip_range: Annotated[float, Field(ge=0)] = 0.0
    """How far the value of a state may move from its old one before its error is clipped, in units
    of the scaled return; 0 is no clipping. Usual 0.2, with normalised rewards."""
    max_grad_norm: Rate = 0.5
    """Largest Euclidean norm of the gradient, per optimiser."""
    entropy_coefficient: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the policy's entropy (nats) in the objective. Usual 0-0.01."""

    def steps_per_batch(self, batch_size: int) -> int:
        """K epochs of so many minibatches, the last of each as small as it comes."""
        return self.epochs * math.ceil(batch_size / self.minibatch_size)


class PPO(FirstOrder):
    """Clipped-surrogate proximal policy optimisation; Schulman et al. 2017, arXiv:1707.06347."""

    learner: ClassVar[str] = "rlbench.training.algorithms.ppo:PPOLearner"

    name: Literal["ppo"] = "ppo"
    """Which algorithm these settings are for."""
    clip_range: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Epsilon of eq. 7: how far the probability ratio may move from 1, no unit. Usual 0.1-0.3."""
    clip_range_schedule: Schedule = "constant"
    """The clip range over the run: constant, or linearly to 0 at the end of the budget."""
    target_kl: Annotated[float, Field(ge=0)] = 0.0
    """An update ends before the first minibatch whose estimated KL divergence (nats) from the old
    policy is above 1.5 times this; 0 is no such end. Usual 0.01-0.05."""


class PPOKL(FirstOrder):
    """Proximal policy optimisation with an adaptive KL penalty; arXiv:1707.06347, section 4."""

    learner: ClassVar[str] = "rlbench.training.algorithms.ppo_kl:PPOKLLearner"

    name: Literal["ppo-kl"] = "ppo-kl"
    """Which algorithm these settings are for."""
    target_kl: Rate = 0.01
    """d_targ: mean KL divergence (nats) that an update should make. Usual 0.003-0.03."""
    kl_coefficient: Rate = 1.0
    """Initial beta: weight of the KL divergence; doubled after an update above 1.5 d_targ, halved
    after one below d_targ / 1.5."""


class A2C(FirstOrder):
    """Advantage actor-critic: the plain policy gradient; Mnih et al. 2016, arXiv:1602.01783."""

    learner: ClassVar[str] = "rlbench.training.algorithms.a2c:A2CLearner"

    name: Literal["a2c"] = "a2c"
    """Which algorithm these settings are for."""
    epochs: Literal[1] = 1
    """Passes over one batch: one, since nothing holds the policy near the one that acted."""


class NaturalGradient(OnPolicy):
    """What algorithms share that move the actor along the natural gradient, once per batch."""

    advantage_norm: Literal["batch", "none"] = "batch"
    """Over which samples advantages are standardised to mean 0 and deviation 1."""
    max_kl: Rate = 0.01
    """Delta: mean KL divergence (nats) from the old policy to the new. Usual 0.001-0.05."""
    max_kl_schedule: Schedule = "constant"
    """Delta over the run: constant, or linearly to 0 at the end of the budget."""
    damping: Annotated[float, Field(ge=0)] = 0.1
    """Multiple of the identity added to the Fisher matrix, no unit. Usual 0.001-0.1."""
    fisher_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of a batch's states that the Fisher matrix is averaged over, drawn at random."""
    cg_iterations: Count = 10
    """Most conjugate-gradient iterations per update."""
    cg_tolerance: Annotated[float, Field(ge=0)] = 1e-10
    """Squared residual norm at which conjugate gradients stop early."""
    critic_epochs: Count = 40
    """Passes of the critic over one batch."""
    critic_minibatch_size: Annotated[int, Field(ge=0)] = 0
    """Samples per gradient step of the critic; 0 is the whole batch."""
    critic_learning_rate: Rate = 1e-3
    """Adam step size of the critic. Usual 3e-4 to 1e-3."""
    critic_learning_rate_schedule: Schedule = "constant"
    """That step size over the run: constant, or linearly to 0 at the end of the budget."""

    def steps_per_batch(self, batch_size: int) -> int:
        """Those of the critic."""
        return self.critic_epochs * math.ceil(
            batch_size / (self.critic_minibatch_size or batch_size)
        )


class TRPO(NaturalGradient):
    """Trust-region policy optimisation; Schulman et al. 2015, arXiv:1502.05477."""

    learner: ClassVar[str] = "rlbench.training.algorithms.trpo:TRPOLearner"

    name: Literal["trpo"] = "trpo"
    """Which algorithm these settings are for."""
    line_search_steps: Count = 10
    """Step lengths tried before the update is given up."""
    line_search_shrink: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Factor between the step lengths tried."""


class NPG(NaturalGradient):
    """Natural policy gradient: the full step, unsearched; Kakade 2001, NeurIPS 14."""

    learner: ClassVar[str] = "rlbench.training.algorithms.npg:NPGLearner"

    name: Literal["npg"] = "npg"
    """Which algorithm these settings are for."""
