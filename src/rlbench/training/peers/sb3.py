"""PPO of Stable-Baselines3 and TRPO of sb3-contrib.

In:      a job, environments, and our networks.
Out:     an `Agent`.
Source:  Raffin et al. 2021, JMLR 22 (268).
"""

from typing import Any, cast

from torch import Tensor

from rlbench.spec.job import Job
from rlbench.spec.peers import SB3PPO, SB3TRPO
from rlbench.training.envs.vector import Environments
from rlbench.training.peers.agent import (
    ACTIVATIONS,
    ForeignAgent,
    policy_arguments,
    quietly,
    rate,
)
from rlbench.training.peers.vec_env import CountedVecEnv
from rlbench.training.policy import Actor, Critic


class _TorchAgent(ForeignAgent):
    """A model whose policy is a PyTorch module."""

    def weights(self) -> tuple[list[Tensor], list[Tensor]]:
        """The weights of their actor and critic, in the order of ours."""
        named = list(self._model.policy.named_parameters())
        return [p for n, p in named if "value" not in n], [p for n, p in named if "value" in n]


class SB3PPOAgent(_TorchAgent):
    """`stable_baselines3.PPO`; see `Agent`."""

    def __init__(
        self, job: Job, envs: Environments, networks: tuple[Actor, Critic], seed: int
    ) -> None:
        import stable_baselines3

        settings = cast("SB3PPO", job.algorithm)
        vec_env = CountedVecEnv(envs, settings.reward_scale)
        model = quietly(
            stable_baselines3.PPO,
            env=vec_env,
            learning_rate=rate(settings.actor_learning_rate, settings.learning_rate_schedule),
            batch_size=settings.minibatch_size,
            n_epochs=settings.epochs,
            clip_range=rate(settings.clip_range, settings.clip_range_schedule),
            clip_range_vf=settings.value_clip_range or None,
            normalize_advantage=settings.advantage_norm == "minibatch",
            ent_coef=settings.entropy_coefficient,
            vf_coef=settings.critic_coefficient,
            max_grad_norm=settings.max_grad_norm,
            target_kl=settings.target_kl or None,
            **_shared(job, seed),
        )
        super().__init__(model, vec_env, networks, job.total_steps or job.actual_batch)


class SB3TRPOAgent(_TorchAgent):
    """`sb3_contrib.TRPO`; see `Agent`."""

    def __init__(
        self, job: Job, envs: Environments, networks: tuple[Actor, Critic], seed: int
    ) -> None:
        import sb3_contrib

        settings = cast("SB3TRPO", job.algorithm)
        vec_env = CountedVecEnv(envs, settings.reward_scale)
        model = quietly(
            sb3_contrib.TRPO,
            env=vec_env,
            learning_rate=rate(
                settings.critic_learning_rate, settings.critic_learning_rate_schedule
            ),
            batch_size=settings.critic_minibatch_size or job.actual_batch,
            n_critic_updates=settings.critic_epochs,
            cg_max_steps=settings.cg_iterations,
            cg_damping=settings.damping,
            line_search_shrinking_factor=settings.line_search_shrink,
            line_search_max_iter=settings.line_search_steps,
            target_kl=settings.max_kl,
            sub_sampling_factor=round(1 / settings.fisher_share),
            normalize_advantage=settings.advantage_norm == "batch",
            **_shared(job, seed),
        )
        super().__init__(model, vec_env, networks, job.total_steps or job.actual_batch)


def _shared(job: Job, seed: int) -> dict[str, Any]:
    settings = job.algorithm
    activation = {"activation_fn": ACTIVATIONS[settings.activation]}
    return {
        "policy": "MlpPolicy",
        "n_steps": job.rollout_steps,
        "gamma": settings.gamma,
        "gae_lambda": settings.gae_lambda,
        "policy_kwargs": policy_arguments(settings) | activation,
        "seed": seed,
        "device": job.device,
    }
