"""Policies as files: plain tensors, loaded without unpickling code.

In:      actor, critic, and the scales on which they saw and learned.
Out:     a file, whole or not at all; `torch.load(weights_only=True)` reads it.
"""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlbench.errors import InputError
from rlbench.records import SCHEMA_VERSION, check_version, write_whole
from rlbench.training.normalise import Moments, Scales
from rlbench.training.policy import Actor, Critic


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy at one moment of its training; later updates leave it as it is."""

    env_steps: int
    """Training transitions before it."""
    actor: dict[str, Tensor]
    critic: dict[str, Tensor]
    scales: Scales


def take_snapshot(networks: tuple[Actor, Critic], scales: Scales, env_steps: int) -> Snapshot:
    """Copy the weights of both networks."""
    actor, critic = (
        {key: weights.clone() for key, weights in network.state_dict().items()}
        for network in networks
    )
    return Snapshot(env_steps, actor, critic, scales)


def save_policy(snapshot: Snapshot, path: Path) -> Path:
    """Write a policy, or leave no file."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "env_steps": snapshot.env_steps,
        "actor": snapshot.actor,
        "critic": snapshot.critic,
        "observations": _as_tensors(snapshot.scales.observations),
        "returns": _as_tensors(snapshot.scales.returns),
    }
    stream = io.BytesIO()
    torch.save(content, stream)
    return write_whole(path, stream.getvalue())


def load_policy(path: Path, networks: tuple[Actor, Critic]) -> Snapshot:
    """Fill both networks with the weights in a file; the policy they now are.

    Raises:
        InputError: no policy there, from another schema, or for networks of another shape.
    """
    if not path.is_file():
        raise InputError(f"{path}: not there; a finished run has it. Run the cell again")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: not a policy that PyTorch has saved; run the cell again")
    saved = torch.load(path, weights_only=True, map_location="cpu")
    check_version(saved.get("schema_version", 0), path)
    try:
        for network, name in zip(networks, ("actor", "critic"), strict=True):
            network.load_state_dict(saved[name])
    except RuntimeError as error:
        raise InputError(f"{path}: for other networks than the job's: {error}") from error
    scales = Scales(_as_moments(saved["observations"]), _as_moments(saved["returns"]))
    return Snapshot(saved["env_steps"], saved["actor"], saved["critic"], scales)


def _as_tensors(moments: Moments | None) -> dict[str, Any] | None:
    if moments is None:
        return None
    return {
        "count": moments.count,
        "mean": torch.from_numpy(moments.mean),
        "squares": torch.from_numpy(moments.squares),
    }


def _as_moments(saved: dict[str, Any] | None) -> Moments | None:
    if saved is None:
        return None
    return Moments(saved["count"], saved["mean"].numpy(), saved["squares"].numpy())
