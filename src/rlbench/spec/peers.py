"""Settings of other libraries' algorithms, under our names, with our meanings.

In:      nothing.
Out:     settings classes whose ranges are what those libraries can do; the extra `peers` runs them.

What they do otherwise than ours, with the same settings: their Adam has epsilon 1e-5 (SB3), values
are clipped otherwise, deviations divide by n - 1. What they cannot do is not allowed here.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rlbench.spec.algorithms import PPO, TRPO, Count, OnPolicy

Nothing = Annotated[float, Field(ge=0, le=0)]
"""A number that can only be 0: what it is for cannot be had."""


class Peer(OnPolicy):
    """What none of them can do otherwise."""

    learner: ClassVar[str] = ""

    observation_norm: Literal["none"] = "none"
    """Observations as they are."""
    reward_norm: Literal["none"] = "none"
    """Rewards as they are, times reward_scale."""
    action_mean: Literal["free"] = "free"
    """Mean of a Gaussian policy: the network's output."""
    action_std: Literal["global"] = "global"
    """Deviation of a Gaussian policy: one learned vector."""
    noise_colour: Nothing = 0.0
    """Exploration noise is white."""

    def steps_per_batch(self, batch_size: int) -> int:  # noqa: ARG002 (theirs are as they are)
        """None that we could compile."""
        return 0


class SB3PPO(Peer, PPO):
    """PPO of Stable-Baselines3; Raffin et al. 2021, JMLR 22 (268)."""

    agent: ClassVar[str] = "rlbench.training.peers.sb3:SB3PPOAgent"
    always_finite: ClassVar[tuple[str, ...]] = (
        "surrogate", "critic_loss", "entropy_nats", "kl_nats",
    )  # fmt: skip

    name: Literal["sb3-ppo"] = "sb3-ppo"  # type: ignore[assignment]
    """Which algorithm these settings are for."""
    advantage_norm: Literal["minibatch", "none"] = "minibatch"
    """Over which samples advantages are standardised to mean 0 and deviation 1."""
    optimiser: Literal["shared"] = "shared"
    """One optimiser for actor and critic, with the actor's step size."""


class SBXPPO(SB3PPO):
    """PPO of SBX, Stable-Baselines3 in JAX."""

    agent: ClassVar[str] = "rlbench.training.peers.sbx:SBXPPOAgent"

    name: Literal["sbx-ppo"] = "sbx-ppo"  # type: ignore[assignment]
    """Which algorithm these settings are for."""
    optimiser: Literal["separate"] = "separate"  # type: ignore[assignment]
    """Actor and critic with an optimiser each, both with the actor's step size."""
    value_clip_range: Nothing = 0.0
    """Values are not clipped."""
    target_kl: Nothing = 0.0
    """No end of an update at a KL limit."""


class SB3TRPO(Peer, TRPO):
    """TRPO of sb3-contrib."""

    agent: ClassVar[str] = "rlbench.training.peers.sb3:SB3TRPOAgent"
    always_finite: ClassVar[tuple[str, ...]] = ("surrogate", "critic_loss", "kl_nats")

    name: Literal["sb3-trpo"] = "sb3-trpo"  # type: ignore[assignment]
    """Which algorithm these settings are for."""
    max_kl_schedule: Literal["constant"] = "constant"
    """Delta is the same over the run."""
    cg_iterations: Count = 15
    """Most conjugate-gradient iterations per update."""
    cg_tolerance: Annotated[float, Field(ge=1e-10, le=1e-10)] = 1e-10
    """Squared residual norm at which conjugate gradients stop early."""
    critic_epochs: Count = 10
    """Passes of the critic over one batch."""
    critic_minibatch_size: Annotated[int, Field(ge=0)] = 128
    """Samples per gradient step of the critic; 0 is the whole batch."""
    line_search_shrink: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Factor between the step lengths tried."""
