"""A small results folder with hand-chosen numbers, written by the package's own writers.

Two algorithms, one environment, 1 and 8 environments, cpu, seeds 0 to 2: twelve cells. TRPO with 1
environment has failed on seed 1, TRPO with 8 is missing seed 2; the other ten have finished.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlbench.analysis.aggregate import Tables, gather, write_plan
from rlbench.records import (
    FAILURE,
    RUN_FACTS,
    EpisodeRow,
    EvaluationRow,
    Failure,
    Machine,
    Numerics,
    ResourceRow,
    RunFacts,
    Software,
    StreamSeeds,
    TimingRow,
    UpdateRow,
    write_facts,
    write_rows,
)
from rlbench.spec.config import Benchmark
from rlbench.spec.grid import Arm, Cell, Devices, job
from rlbench.spec.plan import Plan, make_plan

ENVIRONMENT = "Pendulum-v1"
THRESHOLD = 150.0
REASON = "<script>alert(1)</script> & co | env 0 ended\nsecond line"
EVERY = 1000
"""Steps between evaluations, and steps per update."""
DIGEST = "aaaaaaaaaaaa"
Curve = Sequence[float]
RETURNS: dict[tuple[str, int], list[Curve | None]] = {
    ("ppo", 1): [(0, 50, 100), (0, 150, 200), (0, 100, 300)],
    ("trpo", 1): [(0, 60, 90), None, (0, 160, 310)],
    ("ppo", 8): [(0, 200, 400), (0, 210, 410), (0, 220, 420)],
    ("trpo", 8): [(0, 100, 200), (0, 100, 220), None],
}
"""Mean return of the evaluations after 0, 1000 and 2000 steps; by seed; None has not finished."""
SECONDS: dict[tuple[str, int], Sequence[float]] = {
    ("ppo", 1): (40.0, 20.0, 10.0),
    ("trpo", 1): (25.0, 25.0, 25.0),
    ("ppo", 8): (5.0, 4.0, 2.0),
    ("trpo", 8): (10.0, 10.0, 8.0),
}
"""Of the timed updates, 1000 steps each; the warm-up before them takes 1000 seconds."""


def make_benchmark(**changes: Any) -> Benchmark:
    """The benchmark of the folder, with other values for some keys."""
    values: dict[str, Any] = {
        "name": "handmade",
        "environments": [ENVIRONMENT],
        "num_envs": [1, 8],
        "devices": ["cpu"],
        "seeds": [0, 1, 2],
        "total_steps": 2 * EVERY,
        "batch_size": EVERY,
        "eval_every_steps": EVERY,
        "eval_episodes": 2,
        "thresholds": {ENVIRONMENT: THRESHOLD},
        "throughput": {"updates": 3, "warmup_updates": 1, "repeats": 1},
    }
    return Benchmark.model_validate(values | changes)


def plan_of(benchmark: Benchmark) -> Plan:
    """Its plan on a machine that could have both devices."""
    return make_plan(benchmark, Devices.both(), "config/handmade.yaml")


def handmade(folder: Path) -> Plan:
    """Write the folder that the module describes."""
    plan = plan_of(make_benchmark())
    write_plan(plan, folder)
    write_learning(folder, plan, RETURNS)
    for (algorithm, num_envs), seconds in SECONDS.items():
        write_timings(folder, plan, Arm(algorithm, ENVIRONMENT, num_envs, "cpu"), seconds)
    failed = Cell("trpo", ENVIRONMENT, 1, "cpu", 1)
    write_failure(folder, failed)
    return plan


def handmade_tables(folder: Path) -> tuple[Tables, Plan]:
    """Write the folder and gather it."""
    plan = handmade(folder)
    return gather(plan, folder), plan


def write_learning(
    folder: Path, plan: Plan, returns: Mapping[tuple[str, int], Sequence[Curve | None]]
) -> None:
    """A finished run for every curve, by algorithm and num_envs, then seed."""
    for cell in plan.cells:
        curves = returns.get((cell.algorithm, cell.num_envs), [])
        evaluated = curves[cell.seed] if cell.seed < len(curves) else None
        if evaluated is not None:
            write_run(folder, plan, cell, evaluated)


def write_run(
    folder: Path,
    plan: Plan,
    cell: Cell,
    evaluated: Curve,
    *,
    episodes: int = 2,
    digest: str = DIGEST,
) -> None:
    """One finished run; each evaluation's episodes are spread evenly around its mean."""
    place = folder / "runs" / cell.path
    write_rows([update_row(u, cell) for u in range(len(evaluated) - 1)], UpdateRow, place)
    write_rows(
        [
            EpisodeRow(episode=e, env_steps=200 * (e + 1), env=0, episode_return=r, length=200)
            for e, r in enumerate(training_returns(cell))
        ],
        EpisodeRow,
        place,
    )
    write_rows(
        [
            EvaluationRow(
                env_steps=EVERY * i,
                due_steps=EVERY * i,
                episode=e,
                episode_return=mean + (8 if e % 2 else -8),
                length=200,
            )
            for i, mean in enumerate(evaluated)
            for e in range(episodes)
        ],
        EvaluationRow,
        place,
    )
    write_rows(
        [
            ResourceRow(
                peak_memory_mib=100 + cell.seed,
                user_cpu_s=1,
                system_cpu_s=1,
                involuntary_switches=1,
                load_1min=1,
            )
        ],
        ResourceRow,
        place,
    )
    write_facts(facts_of(plan, cell, "learning", digest), place / RUN_FACTS)


def training_returns(cell: Cell) -> list[float]:
    """Seed s has 3 + s training episodes with returns 10 s, 10 s + 1, and so on."""
    return [10.0 * cell.seed + e for e in range(3 + cell.seed)]


def update_row(update: int, cell: Cell) -> UpdateRow:
    """KL 0.01 and 0.02; entropy 1 + seed, falling by 0.5 per update."""
    ppo = cell.algorithm == "ppo"
    nan = float("nan")
    return UpdateRow(
        update=update,
        env_steps=EVERY * (update + 1),
        episodes=5,
        return_mean=1.0,
        surrogate=0.1,
        critic_loss=10.0 / (update + 1),
        explained_variance=0.5,
        entropy_nats=1.0 + cell.seed - 0.5 * update,
        kl_nats=0.01 * (update + 1),
        actor_grad_norm=1.0,
        critic_grad_norm=1.0,
        clip_fraction=0.1 if ppo else nan,
        line_search_success=nan if ppo else 1.0,
        step_scale=nan if ppo else 1.0,
        cg_residual=nan if ppo else 0.01,
        skipped=nan if ppo else 0.0,
        env_s=1.0,
        policy_s=1.0,
        update_s=1.0,
        evaluate_s=1.0,
        elapsed_s=4.0,
    )


def write_timings(
    folder: Path, plan: Plan, arm: Arm, seconds: Sequence[float], *, digest: str = DIGEST
) -> None:
    """A throughput run: one warm-up update of 1000 s, then these; half is environment."""
    place = folder / "throughput" / arm.path
    write_rows(
        [
            TimingRow(
                repeat=0,
                update=u,
                steps=EVERY,
                env_s=wall / 2,
                policy_s=wall / 4,
                update_s=wall / 8,
                wall_s=wall,
            )
            for u, wall in enumerate([1000.0, *seconds])
        ],
        TimingRow,
        place,
    )
    cell = Cell(arm.algorithm, arm.environment, arm.num_envs, arm.device, plan.benchmark.seeds[0])
    write_facts(facts_of(plan, cell, "throughput", digest), place / RUN_FACTS)


def write_failure(folder: Path, cell: Cell, reason: str = REASON) -> None:
    """The reason why a cell has failed."""
    failure = Failure(reason=reason, ended="2026-01-01T00:00:00+00:00")
    write_facts(failure, folder / "state" / cell.path / FAILURE)


def facts_of(plan: Plan, cell: Cell, kind: str, digest: str) -> RunFacts:
    """Facts of a run that took 60 s, plus 10 s per seed."""
    return RunFacts.model_validate(
        {
            "kind": kind,
            "job": job(plan.benchmark, cell),
            "device": cell.device,
            "vector_mode": "sync",
            "actual_batch": EVERY,
            "actual_steps": 2 * EVERY,
            "episodes": 3 + cell.seed,
            "updates": 2,
            "warmup_updates": 1 if kind == "throughput" else 0,
            "torch_threads": 1,
            "torch_interop_threads": 1,
            "compiled": False,
            "compile_s": 0.0,
            "setup_s": 1.0,
            "wall_s": 60.0 + 10 * cell.seed,
            "started": "2026-01-01T00:00:00+00:00",
            "ended": "2026-01-01T00:01:00+00:00",
            "command": "rlbench train",
            "seeds": StreamSeeds(
                environments=(1,),
                evaluation=(2,),
                initialisation=3,
                noise=4,
                shuffling=5,
                global_generators=6,
                foreign=7,
            ),
            "machine": Machine(
                cpu_model="Abacus <3>",
                cpu_cores=2,
                cpu_physical_cores=1,
                cpu_governor=None,
                memory_mib=4096,
                gpus=(),
                os="Linux",
                kernel="Linux 6",
                libc="glibc 2",
            ),
            "software": Software(
                rlbench="0.1.0",
                python="3.12",
                packages={"numpy": "2"},
                environment_variables={},
                git_commit="0123456789abcdef",
                git_dirty=False,
                git_diff_digest=None,
                code_digest=digest,
                lock_digest=None,
                image_digest=None,
            ),
            "numerics": Numerics(torch=(), numpy_blas="beads", numpy_simd=(), cpp_compiler=None),
        }
    )
