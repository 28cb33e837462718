"""What a person reads once a run has finished, or was played again.

In:      a finished run, or a replay.
Out:     text, a line per number.
"""

import math
from collections.abc import Mapping
from statistics import fmean, stdev

from rlbench.records import NAN
from rlbench.training.replay import Replay
from rlbench.training.train import Finished


def summary_of_run(finished: Finished) -> str:
    """What came out, how the last update went, how fast it was, and the files."""
    facts, log = finished.facts, finished.log
    last = log.updates[-1]
    training_s = facts.wall_s - sum(row.evaluate_s for row in log.updates)
    final = [e.episode_return for e in log.evaluations if e.env_steps == facts.actual_steps]
    lines: dict[str, tuple[float, str]] = {
        "episodes": (facts.episodes, ",.0f"),
        "steps": (facts.actual_steps, ",.0f"),
        "updates": (facts.updates, ",.0f"),
        "mean of the last 20 returns": (log.recent_return, ".1f"),
        f"final evaluation, mean of {len(final)}": (fmean(final), ".1f"),
        "best evaluation, mean": (log.best_return, ".1f"),
        "surrogate": (last.surrogate, ".4g"),
        "critic loss": (last.critic_loss, ".4g"),
        "entropy (nats)": (last.entropy_nats, ".3f"),
        "KL (nats)": (last.kl_nats, ".2g"),
        "clip fraction": (last.clip_fraction, ".3f"),
        "line search, step scale": (last.step_scale, ".3g"),
        "wall time (s)": (facts.wall_s, ".1f"),
        "steps/s, without evaluations": (facts.actual_steps / training_s, ",.0f"),
        "updates/s": (facts.updates / training_s, ".2f"),
    }
    title = f"\n{facts.job.algorithm.name} on {facts.job.environment}"
    return "\n".join([title, *_aligned(lines), *(f"wrote {path}" for path in finished.files)])


def summary_of_replay(replay: Replay) -> str:
    """Statistics of the episodes, and how they stand to those that the run recorded."""
    job, outcomes = replay.job, replay.outcomes
    returns = [outcome.episode_return for outcome in outcomes]
    lines: dict[str, tuple[float, str]] = {
        "training steps before it": (replay.env_steps, ",.0f"),
        "episodes": (len(outcomes), ",.0f"),
        "mean return": (fmean(returns), ".1f"),
        "standard deviation over episodes": (stdev(returns) if len(returns) > 1 else NAN, ".1f"),
        "worst return": (min(returns), ".1f"),
        "best return": (max(returns), ".1f"),
        "mean length": (fmean(outcome.length for outcome in outcomes), ".1f"),
    }
    title = f"{job.algorithm.name} on {job.environment}, seed {job.seed}: {replay.policy} policy"
    text = [title, *_aligned(lines)]
    if replay.device != job.device:
        text.append(
            f"played on {replay.device}, trained on {job.device}, which is not here: exact "
            "repetition is only promised on the same device"
        )
    if replay.compared and not replay.difference:
        text.append("every episode is exactly the one that the run recorded")
    return "\n".join(text)


def _aligned(lines: Mapping[str, tuple[float, str]]) -> list[str]:
    """Name and number; one that is NaN is left out."""
    return [
        f"  {name:<32} {value:{form}}"
        for name, (value, form) in lines.items()
        if not math.isnan(value)
    ]
