"""One seed, many independent streams.

In:      the seed of a run.
Out:     a seed per environment, and a generator per kind of draw.
Source:  NumPy's SeedSequence; children are spawned, never `seed + i`, so that neighbouring
         seeds and the parts of one run share nothing.
"""

import random
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent sources of randomness for one run, the same for every algorithm."""

    env_seeds: list[int]  # [N]; a prefix of the list for any larger N
    eval_seeds: list[int]  # one per evaluation episode
    initialisation: torch.Generator  # on the CPU: initial weights do not depend on the device
    noise: torch.Generator  # of actions, on the device
    shuffling: torch.Generator  # of minibatches, on the device
    foreign_seed: int  # for an algorithm of another library, which has generators of its own


def open_streams(seed: int, num_envs: int, eval_episodes: int, device: torch.device) -> Streams:
    """Split one seed so that neighbouring seeds, and the parts of one run, share nothing."""
    envs, evaluation, initialisation, noise, shuffling, _, foreign = _children(seed)
    return Streams(
        env_seeds=[_number(child) for child in envs.spawn(num_envs)],
        eval_seeds=[_number(child) for child in evaluation.spawn(eval_episodes)],
        initialisation=_generator(initialisation, torch.device("cpu")),
        noise=_generator(noise, device),
        shuffling=_generator(shuffling, device),
        foreign_seed=_number(foreign),
    )


def seed_globals(seed: int) -> None:
    """Fix the global generators too: nothing here draws from them, an environment might."""
    number = _number(_children(seed)[5])
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    torch.manual_seed(number)


def _children(seed: int) -> list[np.random.SeedSequence]:
    return np.random.SeedSequence(seed).spawn(7)


def _number(sequence: np.random.SeedSequence) -> int:
    """31 bits: what simulators written in C take as a seed."""
    return int(sequence.generate_state(1, np.uint32)[0]) >> 1


def _generator(sequence: np.random.SeedSequence, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> 1))
