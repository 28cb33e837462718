"""One gradient step per rollout."""

import torch

from rlbench.records import Metrics
from rlbench.training.algorithms.learner import make_batch


class ReinforceLearner:
    """See `rlbench.training.algorithms.learner.Learner`."""

    def __init__(self, settings, networks, shuffling, example=None):
        self._settings, (self._actor, self._critic) = settings, networks
        weights = [*self._actor.parameters(), *self._critic.parameters()]
        self._optimiser = torch.optim.Adam(weights, lr=settings.learning_rate)

    def update(self, rollout, remaining):
        """Ascend E[log pi(a | s) A], and fit the values to their targets."""
        batch = make_batch(rollout, self._settings)
        policy = self._actor(batch.observations)
        surrogate = (policy.log_prob(batch.actions) * batch.advantages).mean()
        error = (self._critic(batch.observations) - batch.targets).square().mean()
        self._optimiser.zero_grad()
        (error - surrogate).backward()
        norms = [
            torch.nn.utils.get_total_norm([p.grad for p in network.parameters()]).item()
            for network in (self._actor, self._critic)
        ]
        self._optimiser.step()
        with torch.no_grad():
            new = self._actor(batch.observations)
            return Metrics(
                surrogate=surrogate.item(),
                critic_loss=error.item(),
                explained_variance=float("nan"),
                entropy_nats=new.entropy().mean().item(),
                kl_nats=policy.frozen().kl_to(new).mean().item(),
                actor_grad_norm=norms[0],
                critic_grad_norm=norms[1],
            )
