"""From settings to a learner. A new algorithm is one file here; its settings name it."""

import shutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from rlbench.errors import InputError
from rlbench.machine import compiler, why_nothing_compiled_runs
from rlbench.spec.algorithms import OnPolicy
from rlbench.spec.job import Job
from rlbench.training.algorithms.learner import Batch, Learner
from rlbench.training.policy import Actor, Critic

PAYS_FROM_STEPS = 10_000
"""Gradient steps from which compiling pays: about 20 s to compile, 6 s once a grid has, and 1.1 ms
saved in each of PPO's with its share of the rollout (measured)."""


def make_learner(
    settings: OnPolicy,
    networks: tuple[Actor, Critic],
    shuffling: torch.Generator,
    example: Batch | None = None,
) -> Learner:
    """The learner that the settings name; an example batch asks for the compiled mode."""
    learner: Learner = named(settings.learner)(settings, networks, shuffling, example)
    return learner


def named(place: str) -> Callable[..., Any]:
    """What `module:name` stands for, imported now."""
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def wants_compiled(job: Job) -> bool:
    """Whether a run takes its gradient steps as a compiled program.

    `auto`: where it pays, on a CPU with at least `PAYS_FROM_STEPS` of them, and can be done.

    Raises:
        InputError: `always`, and it cannot be done here.
    """
    per_batch = job.algorithm.steps_per_batch(job.actual_batch)
    if job.compile == "never" or per_batch == 0:
        return False
    if job.compile == "always":
        if reason := why_not_compiled():
            raise InputError(f"compile: got 'always', but {reason}; or use 'auto' or 'never'")
        return True
    steps = (job.total_steps or 0) / job.actual_batch * per_batch
    return job.device == "cpu" and steps >= PAYS_FROM_STEPS and not why_not_compiled()


def why_not_compiled() -> str:
    """What the compiler lacks here, and the way out; empty if it lacks nothing."""
    if not compiler():
        return "no C++ compiler is on the PATH; install g++, or name one in CXX"
    if not shutil.which("openssl"):  # PyTorch runs it for the checksums of its headers
        return "no openssl is on the PATH; install it"
    if reason := why_nothing_compiled_runs():
        return f"{reason}; name another in TORCHINDUCTOR_CACHE_DIR (Docker: --tmpfs /tmp:exec)"
    return ""
