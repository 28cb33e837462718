"""What the algorithms must reach, held against what they have reached.

In:      finished results folders, results/reference-GROUP each, as `make reference` makes them.
Out:     one table of gates, printed; per group docs/reference/learning/GROUP.md (gates, machine,
         versions) and GROUP.csv (what was measured in each run). Exit code 1 if a gate fails or a
         run is missing, 2 if a folder cannot be judged.
Source:  the seed is the unit, as in Agarwal et al. 2021, arXiv:2108.13264: an evaluation's episodes
         become one number per seed, the seeds one number per arm, and that has a bound.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import tyro

from rlbench.analysis.aggregate import ARM, CELL, Tables, gather, mixed_code, read_plan
from rlbench.analysis.statistics import estimate, interquartile_mean
from rlbench.analysis.tables import as_markdown
from rlbench.analysis.words import readable
from rlbench.errors import InputError, RlbenchError
from rlbench.records import (
    EvaluationRow,
    Machine,
    Software,
    UpdateRow,
    read_facts,
    read_rows,
    write_whole,
)
from rlbench.spec.config import load_benchmark
from rlbench.spec.plan import Plan

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "config" / "reference"
REFERENCE = ROOT / "docs" / "reference"
DECISIVE = (
    "torch", "numpy", "gymnasium", "scipy", "mujoco", "envpool", "stable-baselines3", "sb3-contrib",
    "sbx-rl", "jax",
)  # fmt: skip
"""Packages that the numbers of these runs come from."""


# -- the gates ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gate:
    """A promise of each arm of a group, over the seeds of the group's config."""

    quantity: str
    """One of QUANTITIES: a number per seed."""
    over_seeds: str
    """One of OVER_SEEDS: from the seeds' numbers to the arm's."""
    sense: Literal["<=", ">=", ">"]
    bound: float
    only: str = ""
    """The algorithm that promises it; empty: each of the group."""

    def __str__(self) -> str:
        return f"{self.over_seeds} of {self.quantity} {self.sense} {self.bound:g}"


TRUST_REGION = Gate("KL above max_kl", "max", "<=", 1e-6, only="trpo")
PENDULUM = (
    Gate("regret", "IQM", "<=", 12.6),
    Gate("regret", "max", "<=", 22.6),
    Gate("line-search success", "mean", ">=", 0.95, only="trpo"),
    TRUST_REGION,
)
GATES: dict[str, tuple[Gate, ...]] = {
    "pendulum": PENDULUM,
    "pendulum-native": PENDULUM,
    "pendulum-eager": PENDULUM,
    "pendulum-envpool": PENDULUM,
    "pendulum-envs": (Gate("regret", "IQM", "<=", 27.6),),
    "cartpole": (
        Gate("final return", "IQM", ">=", 500),
        Gate("final return", "min", ">=", 475),
        TRUST_REGION,
    ),
    "cartpole-family": (Gate("final return", "IQM", ">=", 475),),
    "cartpole-a2c": (Gate("final return", "IQM", ">=", 475),),
    "acrobot": (Gate("final return", "IQM", ">=", -85), TRUST_REGION),
    "mountaincar": (Gate("final return", "IQM", ">=", 90), TRUST_REGION),
    "lunarlander": (Gate("final return", "IQM", ">=", 200), TRUST_REGION),
    "first-steps": (
        Gate("gain on random", "lower end of IQM", ">", 0),
        TRUST_REGION,
    ),
}
"""By group: config/reference/GROUP.yaml says with which algorithms, environments, seeds, budget."""


# -- one number per seed -----------------------------------------------------------------------


def final_return(run: Path) -> float:
    """Return of the final policy, mean over the episodes of the last evaluation."""
    return float(_evaluation_means(run).iloc[-1])


def gain_on_untrained(run: Path) -> float:
    """Return of the final policy minus that of the same networks before training."""
    means = _evaluation_means(run)
    return float(means.iloc[-1] - means.loc[0])


def gain_on_random(run: Path) -> float:
    """Return of the final policy minus that of uniformly random actions."""
    points = _table("reference_points.csv").set_index("environment")["random_return"]
    return final_return(run) - float(points[read_facts(run).job.environment])


def regret(run: Path) -> float:
    """Best possible return minus that of the final policy, mean over the same 1,000 starts."""
    from rlbench.training.replay import evaluate_run

    starts = _table("pendulum_optimum.csv")
    outcomes = evaluate_run(run, "last", starts["seed"].tolist())
    returns = np.array([outcome.episode_return for outcome in outcomes])
    return float((starts["optimal_return"].to_numpy() - returns).mean())


def kl_excess(run: Path) -> float:
    """KL divergence (nats) of the largest of all updates, minus the bound of the run."""
    bound = read_facts(run).job.algorithm.model_dump()["max_kl"]
    return float(read_rows(UpdateRow, run)["kl_nats"].to_numpy().max() - bound)


def line_search_success(run: Path) -> float:
    """Share of all updates whose line search accepted a step."""
    return float(read_rows(UpdateRow, run)["line_search_success"].to_numpy().mean())


def _evaluation_means(run: Path) -> "pd.Series[float]":
    """Mean return of each evaluation, by the training steps at which it was due."""
    return read_rows(EvaluationRow, run).groupby("due_steps")["episode_return"].mean()


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(REFERENCE / name)


QUANTITIES: dict[str, Callable[[Path], float]] = {
    "final return": final_return,
    "gain on untrained": gain_on_untrained,
    "gain on random": gain_on_random,
    "regret": regret,
    "KL above max_kl": kl_excess,
    "line-search success": line_search_success,
}


# -- one number per arm ------------------------------------------------------------------------


OVER_SEEDS: dict[str, Callable[[np.ndarray], float]] = {
    "IQM": lambda values: float(interquartile_mean(values)),
    "lower end of IQM": lambda values: estimate(values).low,  # 95 % bootstrap interval
    "mean": lambda values: float(values.mean()),
    "min": lambda values: float(values.min()),
    "max": lambda values: float(values.max()),
}
HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda measured, bound: measured <= bound,
    ">=": lambda measured, bound: measured >= bound,
    ">": lambda measured, bound: measured > bound,
}
PASSES = "passes"


def measure(tables: Tables, folder: Path, plan: Plan, gates: Iterable[Gate]) -> pd.DataFrame:
    """One row per planned run: its cell, its status, each quantity that a gate asks of it."""
    rows = []
    for cell, status in zip(plan.cells, tables.cells["status"], strict=True):
        wanted = [g.quantity for g in gates if g.only in ("", cell.algorithm) and status == "ok"]
        run = folder / "runs" / cell.path
        rows.append(asdict(cell) | {"status": status} | {q: QUANTITIES[q](run) for q in wanted})
    quantities = dict.fromkeys(gate.quantity for gate in gates)
    return pd.DataFrame(rows, columns=[*CELL, "status", *quantities])


def verdict(gate: Gate, runs: pd.DataFrame) -> tuple[float, str]:
    """What a gate measures on the runs of one arm, and what follows.

    A missing run fails the gate whatever the others say, and so does a number that is none.
    """
    done = runs[runs["status"] == "ok"]
    if len(done) < len(runs):
        return np.nan, f"FAILS: {len(runs) - len(done)} of {len(runs)} runs are missing"
    values = done[gate.quantity].to_numpy(float)
    measured = OVER_SEEDS[gate.over_seeds](values) if np.isfinite(values).all() else np.nan
    return measured, PASSES if HOLDS[gate.sense](measured, gate.bound) else "FAILS"


def judge(runs: pd.DataFrame, gates: Sequence[Gate]) -> pd.DataFrame:
    """A row per arm and gate: the arm, required, measured, verdict, the number of each seed."""
    rows = []
    for key, arm in runs.groupby(ARM, sort=False):
        place = dict(zip(ARM, key, strict=True))
        for gate in gates:
            if gate.only in ("", place["algorithm"]):
                measured, text = verdict(gate, arm)
                per_seed = ", ".join(readable(float(v)) or "none" for v in arm[gate.quantity])
                rows.append(
                    place
                    | {"required": str(gate), "measured": measured, "verdict": text}
                    | {"per_seed": per_seed}
                )
    return pd.DataFrame(rows)


# -- folders and pages -------------------------------------------------------------------------


def group_of(folder: Path, plan: Plan) -> str:
    """The group that a results folder answers, run exactly as its config says.

    Raises:
        InputError: there is no such group, or the folder was made from other values.
    """
    group = plan.benchmark.name.removeprefix("reference-")
    if group not in GATES:
        raise InputError(
            f"{folder}: got benchmark '{plan.benchmark.name}'; allowed: "
            f"{', '.join(f'reference-{known}' for known in GATES)}"
        )
    if plan.benchmark != load_benchmark(CONFIGS / f"{group}.yaml"):
        raise InputError(
            f"{folder}: made with other values than config/reference/{group}.yaml has; "
            f"run `make reference GROUP={group}` again"
        )
    return group


def require_one_code(tables: Tables, folder: Path) -> None:
    """Refuse runs that should not be compared.

    Raises:
        InputError: they come from different versions of the training code.
    """
    versions = mixed_code(tables)
    if len(versions) > 1:
        raise InputError(
            f"{folder}: {len(versions)} versions of the training code ({', '.join(versions)}); "
            "remove the folder and run `make reference` again"
        )


def machines(tables: Tables) -> str:
    """Commit, code, machine and versions of the runs, as Markdown lines."""
    texts = tables.cells[["machine", "software"]].dropna().drop_duplicates()
    found = [
        _described(Machine.model_validate_json(machine), Software.model_validate_json(software))
        for machine, software in texts.itertuples(index=False)
    ]
    return "\n".join(f"- {line}" for line in dict.fromkeys(found)) + "\n"


def _described(machine: Machine, software: Software) -> str:
    changed = ", with uncommitted changes" if software.git_dirty else ""
    gpus = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU"
    packages = ", ".join(
        f"{name} {software.packages[name]}" for name in DECISIVE if name in software.packages
    )
    return (
        f"commit `{software.git_commit[:12]}`{changed}, code `{software.code_digest}`; "
        f"{machine.cpu_model}, {machine.cpu_cores} cores, {gpus}, {machine.os}; "
        f"Python {software.python}, {packages}"
    )


def page(group: str, judged: pd.DataFrame, provenance: str) -> str:
    """The Markdown page of a group."""
    return (
        f"# {group}\n\n`make reference GROUP={group}` runs `config/reference/{group}.yaml` and "
        f"writes this page; every run is in [{group}.csv]({group}.csv).\n\n"
        f"{provenance}\n{as_markdown(judged)}"
    )


def main(
    results: Annotated[tuple[Path, ...], tyro.conf.Positional],
    output: Path = REFERENCE / "learning",
) -> int:
    """Judge results folders; the exit code.

    Args:
        results: Folders that `make reference` has made, such as results/reference-pendulum.
        output: Folder for a page and a CSV per group.
    """
    every = []
    for folder in results:
        plan = read_plan(folder)
        group = group_of(folder, plan)
        tables = gather(plan, folder)
        require_one_code(tables, folder)
        runs = measure(tables, folder, plan, GATES[group])
        judged = judge(runs, GATES[group])
        write_whole(output / f"{group}.md", page(group, judged, machines(tables)).encode())
        write_whole(output / f"{group}.csv", runs.to_csv(index=False).encode())
        every.append(judged)
    table = pd.concat(every, ignore_index=True)
    print(as_markdown(table))
    failed = int((table["verdict"] != PASSES).sum())
    print(f"{len(table) - failed} of {len(table)} gates pass")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(tyro.cli(main))
    except RlbenchError as error:
        print(f"learning_gates: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
