"""Policies as files: plain tensors, loaded without unpickling code.

In:      actor and critic.
Out:     `policy.pt`, whole or not at all; `torch.load(weights_only=True)` reads it.
"""

import io
from pathlib import Path

import torch

from rlbench.errors import InputError
from rlbench.records import POLICY, SCHEMA_VERSION, check_version, write_whole
from rlbench.training.policy import Actor, Critic


def save_policy(folder: Path, actor: Actor, critic: Critic) -> Path:
    """Write the weights of both networks, or leave no file."""
    stream = io.BytesIO()
    weights = {"actor": actor.state_dict(), "critic": critic.state_dict()}
    torch.save({"schema_version": SCHEMA_VERSION, **weights}, stream)
    return write_whole(folder / POLICY, stream.getvalue())


def load_policy(folder: Path, actor: Actor, critic: Critic) -> None:
    """Fill both networks with the weights in a run's folder.

    Raises:
        InputError: no policy there, from a newer rlbench, or for networks of another shape.
    """
    path = folder / POLICY
    if not path.is_file():
        raise InputError(f"{path}: not there; a finished run has it. Run the cell again")
    saved = torch.load(path, weights_only=True, map_location="cpu")
    check_version(saved["schema_version"], path)
    try:
        actor.load_state_dict(saved["actor"])
        critic.load_state_dict(saved["critic"])
    except RuntimeError as error:
        raise InputError(f"{path}: for other networks than the job's: {error}") from error
