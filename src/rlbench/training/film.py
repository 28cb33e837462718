"""One episode as a film, in a file for people to look at.

In:      an episode that was played: environment, seed, the actions taken in it.
Out:     an mp4 or a gif at the environment's own frame rate, whole or not at all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlbench.errors import InputError, RunFailed
from rlbench.records import write_whole
from rlbench.training.envs.making import make_one

NEEDS = {".mp4": ("imageio", "imageio_ffmpeg"), ".gif": ("imageio", "PIL")}
"""Modules behind each kind of file."""
MODE = "rgb_array"
REPEATS_TO = 1e-6
"""Relative difference in return up to which a filmed episode is the one that was played."""
USUAL_FPS = 30.0
"""Frames per second of an environment that names none."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode as it was played; environments repeat it from its seed and actions."""

    environment: str
    seed: int
    actions: Sequence[Any]  # as the environment takes them
    episode_return: float


def require_film(path: Path, environment: str) -> None:
    """Refuse a film that cannot be made, before anything is played.

    Raises:
        InputError: a kind of file that is not supported, a module that is not installed, or an
            environment that does not draw itself.
    """
    kind = path.suffix.lower()
    if kind not in NEEDS:
        raise InputError(f"--render: got {path}; must end in {' or '.join(NEEDS)}")
    missing = [module for module in NEEDS[kind] if find_spec(module) is None]
    if missing:
        raise InputError(
            f"--render: a film as {kind} needs {' and '.join(missing)}, not installed here; "
            'pip install "rlbench[render]"'
        )
    env = make_one(environment)
    modes = env.metadata.get("render_modes") or ()
    env.close()
    if MODE not in modes:
        raise InputError(
            f"--render: environment '{environment}' cannot be filmed: it draws itself in modes "
            f"{', '.join(modes) or 'none'}; must have {MODE}"
        )


def film_episode(episode: Episode, path: Path) -> Path:
    """Play the actions again, take a frame of each state, and write them to a file.

    Raises:
        InputError: a package that the environment draws with is missing.
        RunFailed: the environment cannot draw itself here, or does not repeat the episode.
    """
    env = make_one(episode.environment, render_mode=MODE)
    try:
        env.reset(seed=episode.seed)
        frames, total = [_frame(env)], 0.0
        for action in episode.actions:
            total += float(env.step(action)[1])
            frames.append(_frame(env))
    finally:
        env.close()
    if not math.isclose(total, episode.episode_return, rel_tol=REPEATS_TO):
        raise RunFailed(
            f"--render: environment '{episode.environment}' does not repeat an episode: return "
            f"{total} while filmed, {episode.episode_return} before; no film is written"
        )
    fps = float(env.metadata.get("render_fps") or USUAL_FPS)
    return write_whole(path, _encoded(frames, path.suffix.lower(), fps))


def _frame(env: gym.Env[Any, Any]) -> np.ndarray:
    """The state as a picture, [height, width, 3]."""
    try:
        return np.asarray(env.render(), np.uint8)
    except gym.error.DependencyNotInstalled as error:
        raise InputError(f"--render: {error}") from error
    except Exception as error:
        raise RunFailed(
            f"--render: the environment could not draw itself: {type(error).__name__}: {error}"
        ) from error


def _encoded(frames: list[np.ndarray], kind: str, fps: float) -> bytes:
    import imageio.v3 as iio

    options: dict[str, Any] = {"plugin": "pillow", "duration": 1000 / fps, "loop": 0}
    if kind == ".mp4":
        options = {"plugin": "FFMPEG", "fps": fps, "macro_block_size": 2}  # H.264: even sizes
    content: bytes = iio.imwrite("<bytes>", frames, extension=kind, **options)
    return content
