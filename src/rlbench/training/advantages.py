"""Generalised advantage estimates and value targets.

In:      a Rollout of T steps in N environments.
Out:     advantages and value targets, [T, N] each.
Source:  Schulman et al. 2016, arXiv:1506.02438, eq. 16.
"""

import torch
from torch import Tensor

from rlbench.training.rollout import Rollout


def advantages(rollout: Rollout, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimates, [T, N].

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t)
    A_t     = delta_t + gamma lambda A_{t+1}, cut where an episode ended     eq. 16

    There is no case for death, time limit or the last step: `next_values` knows them.
    """
    delta = rollout.rewards + gamma * rollout.next_values - rollout.values  # [T, N]
    carry = gamma * gae_lambda * ~rollout.ended  # [T, N]
    estimates = torch.empty_like(delta)  # [T, N]
    running = torch.zeros_like(delta[0])  # [N]
    for t in reversed(range(len(delta))):
        running = delta[t] + carry[t] * running
        estimates[t] = running
    return estimates


def standardised(values: Tensor) -> Tensor:
    """Values with mean 0 and deviation 1, same shape; a single value is left as it is."""
    if values.numel() < 2:
        return values
    return (values - values.mean()) / (values.std() + 1e-8)


def explained_variance(values: Tensor, targets: Tensor) -> Tensor:
    """1 - Var(target - value) / Var(target), []; 1 is perfect, 0 a constant; NaN if Var is 0."""
    variance = targets.var(correction=0)
    return torch.where(variance > 0, 1 - (targets - values).var(correction=0) / variance, torch.nan)
