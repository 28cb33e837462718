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

from rlbench.records import StreamSeeds


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent sources of randomness for one run, the same for every algorithm."""

    env_seeds: list[int]  # [N]; a prefix of the list for any larger N
    eval_seeds: list[int]  # one per evaluation episode
    initialisation: torch.Generator  # on the CPU: initial weights do not depend on the device
    noise: torch.Generator  # of actions, on the device
    shuffling: torch.Generator  # of minibatches, on the device
    foreign_seed: int  # for an algorithm of another library, which has generators of its own
    seeds: StreamSeeds  # the number behind each of them


def open_streams(seed: int, num_envs: int, eval_episodes: int, device: torch.device) -> Streams:
    """Split one seed so that neighbouring seeds, and the parts of one run, share nothing."""
    seeds = stream_seeds(seed, num_envs, eval_episodes)
    return Streams(
        env_seeds=list(seeds.environments),
        eval_seeds=list(seeds.evaluation),
        initialisation=torch.Generator("cpu").manual_seed(seeds.initialisation),
        noise=torch.Generator(device).manual_seed(seeds.noise),
        shuffling=torch.Generator(device).manual_seed(seeds.shuffling),
        foreign_seed=seeds.foreign,
        seeds=seeds,
    )


def stream_seeds(seed: int, num_envs: int, eval_episodes: int) -> StreamSeeds:
    """The number behind each stream of a run."""
    children = np.random.SeedSequence(seed).spawn(7)
    envs, evaluation, initialisation, noise, shuffling, everywhere, foreign = children
    return StreamSeeds(
        environments=tuple(_bits31(child) for child in envs.spawn(num_envs)),
        evaluation=tuple(_bits31(child) for child in evaluation.spawn(eval_episodes)),
        initialisation=_bits63(initialisation),
        noise=_bits63(noise),
        shuffling=_bits63(shuffling),
        global_generators=_bits31(everywhere),
        foreign=_bits31(foreign),
    )


def seed_globals(seed: int) -> None:
    """Fix the global generators too: nothing here draws from them, an environment might."""
    number = stream_seeds(seed, 0, 0).global_generators
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    torch.manual_seed(number)


def _bits31(sequence: np.random.SeedSequence) -> int:
    """What simulators written in C take as a seed."""
    return int(sequence.generate_state(1, np.uint32)[0]) >> 1


def _bits63(sequence: np.random.SeedSequence) -> int:
    """What a generator of PyTorch takes."""
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)
