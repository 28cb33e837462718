"""PPO of SBX: Stable-Baselines3 in JAX.

In:      a job, environments, and our networks.
Out:     an `Agent`, compiled before its first step.
Source:  Raffin et al. 2021, JMLR 22 (268); SBX, Stable Baselines Jax.
"""

import os
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from rlbench.spec.job import Job
from rlbench.spec.peers import SBXPPO
from rlbench.training.envs.vector import Environments
from rlbench.training.peers.agent import ForeignAgent, policy_arguments, quietly, rate
from rlbench.training.peers.vec_env import CountedVecEnv
from rlbench.training.policy import Actor, Critic
from rlbench.training.stopwatch import Stopwatch


class SBXPPOAgent(ForeignAgent):
    """`sbx.PPO`; see `Agent`."""

    def __init__(
        self, job: Job, envs: Environments, networks: tuple[Actor, Critic], seed: int
    ) -> None:
        _configure_jax(job)
        import sbx
        from flax import linen

        settings = cast("SBXPPO", job.algorithm)
        vec_env = CountedVecEnv(envs, settings.reward_scale)
        model = quietly(
            sbx.PPO,
            "MlpPolicy",
            vec_env,
            learning_rate=rate(settings.actor_learning_rate, settings.learning_rate_schedule),
            n_steps=job.rollout_steps,
            batch_size=settings.minibatch_size,
            n_epochs=settings.epochs,
            gamma=settings.gamma,
            gae_lambda=settings.gae_lambda,
            clip_range=rate(settings.clip_range, settings.clip_range_schedule),
            normalize_advantage=settings.advantage_norm == "minibatch",
            ent_coef=settings.entropy_coefficient,
            vf_coef=settings.critic_coefficient,
            max_grad_norm=settings.max_grad_norm,
            policy_kwargs=policy_arguments(settings)
            | {"activation_fn": {"tanh": linen.tanh, "relu": linen.relu}[settings.activation]},
            seed=seed,
        )
        super().__init__(model, vec_env, networks, job.total_steps or job.actual_batch)
        watch = Stopwatch(torch.device("cpu"))
        self._compile(seed)
        self.compile_s = watch.elapsed()

    def weights(self) -> tuple[list[Tensor], list[Tensor]]:
        """The weights of their actor and critic, in the order of ours."""
        policy = self._model.policy
        return _ordered(policy.actor_state.params), _ordered(policy.vf_state.params)

    def _compile(self, seed: int) -> None:
        """A rollout and one epoch, so that their functions are compiled; then all as before."""
        model, policy = self._model, self._model.policy
        before = policy.actor_state, policy.vf_state, policy.key, policy.noise_key
        epochs, model.n_epochs = model.n_epochs, 1
        self.collect(model.n_steps, None, Stopwatch(torch.device("cpu")))
        model.train()
        model.n_epochs = epochs
        policy.actor_state, policy.vf_state, policy.key, policy.noise_key = before
        model.set_random_seed(seed)
        self.begin()


def _configure_jax(job: Job) -> None:
    """Threads and device, as far as JAX has not been used in this process; a user's value wins."""
    os.environ.setdefault("JAX_PLATFORMS", job.device)
    if job.cpu_threads == 1:
        one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ.setdefault("XLA_FLAGS", one)


def _ordered(params: Any) -> list[Tensor]:
    """The deviation if there is one, then weight and bias of each layer; matrices are turned."""
    own = params["params"]
    layers = sorted((name for name in own if name.startswith("Dense_")), key=lambda n: int(n[6:]))
    arrays = [own["log_std"]] if "log_std" in own else []
    for name in layers:
        arrays += [own[name]["kernel"].T, own[name]["bias"]]
    return [torch.tensor(np.asarray(array)) for array in arrays]
