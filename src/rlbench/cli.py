"""The `rlbench` command: parse, call one function, exit code.

0 done · 1 a run failed or results cannot be trusted · 2 the request is wrong
130 interrupted · 141 nobody reads on · 143 asked to end.
"""

import os
import select
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from json import dumps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import tyro

from rlbench.devices import devices_here
from rlbench.errors import InputError, RlbenchError, RunFailed
from rlbench.flags import RunFlags, flag_value, flat_flags, job_from, part_of
from rlbench.machine import describe_machine, usable_cores
from rlbench.records import PolicyName, write_whole
from rlbench.software import describe_software
from rlbench.spec.config import load_benchmark
from rlbench.spec.grid import Cell, cells, job
from rlbench.spec.job import Job, ThroughputJob, VectorMode
from rlbench.spec.plan import Plan, make_plan
from rlbench.spec.presets import resolve
from rlbench.spec.registry import ALGORITHMS
from rlbench.spec.settings import parsed, validated

if TYPE_CHECKING:
    from rlbench.training.train import Finished


TENSORBOARD_HELP = "Write curves too, as the run goes on; `tensorboard --logdir DIR` shows them."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, _leave)
    try:
        tyro.extras.subcommand_cli_from_dict(
            {name: make(given) for name, make in COMMANDS.items()},
            prog="rlbench",
            description="Benchmark PPO and TRPO: return against steps and seconds, with intervals.",
            args=given,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
        sys.stdout.flush()
    except RlbenchError as error:
        print(f"rlbench: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("rlbench: interrupted; what was not finished left no rows", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not _unread():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return 0


def _unread() -> bool:
    """Whether whoever read what is printed, `head` say, has had enough."""
    poll = select.poll()
    poll.register(sys.stdout, select.POLLERR)
    return bool(poll.poll(0))


def _leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 (a signal handler)
    """End by an exception, so that environments are closed and partial files removed."""
    raise SystemExit(128 + number)


# -- training ----------------------------------------------------------------------------------


def _train_command(given: list[str]) -> Callable[..., None]:
    """`train` with the flags of the algorithm that is asked for, or `train --job`."""
    if flag_value(given, "job", ""):
        return _train_job
    algorithm = flag_value(given, "algorithm", "ppo")
    environment = flag_value(given, "env_name", RunFlags().env_name)
    settings, _ = resolve(algorithm, environment, {}, "flags")
    flags = flat_flags("TrainFlags", RunFlags(), settings, algorithm=algorithm)

    def train(
        flags: tyro.conf.OmitArgPrefixes[flags],  # type: ignore[valid-type]
        tensorboard: Annotated[bool, tyro.conf.arg(help=TENSORBOARD_HELP)] = False,
    ) -> None:
        values: dict[str, Any] = {f: getattr(flags, f) for f in flags.__dataclass_fields__}  # type: ignore[attr-defined]
        run = validated(RunFlags, part_of(values, RunFlags), "flags")
        hyperparameters = part_of(values, ALGORITHMS[algorithm]) | {"name": algorithm}
        job = job_from(run, hyperparameters)
        _print_summary(_run(job, run.output_dir, tensorboard=tensorboard))

    train.__doc__ = f"""Train one policy, from flags or from --job JSON.

    Hyperparameters are those of --algorithm {algorithm}; every one is a flag. A flag wins over the
    preset for the environment, the preset over the default; the defaults below are what applies
    to {algorithm} on {environment}. For the flags of another
    algorithm: rlbench train --algorithm {{{",".join(ALGORITHMS)}}} --help.

    Writes updates, episodes, evaluations and resources (parquet), policy.pt,
    best_policy.pt and run.json.
    """
    return train


def _train_job(
    job: str,
    output_dir: Path = Path("outputs"),
    state_dir: Path | None = None,
    tensorboard: bool = False,
) -> None:
    """Train one job given as JSON, as the workflow does.

    Args:
        job: The job as JSON; `rlbench show-job` prints one.
        output_dir: Folder for the files of the run.
        state_dir: Folder for `failure.json`, the reason if the run fails; by default none is kept.
        tensorboard: Write curves too, as the run goes on; `tensorboard --logdir DIR` shows them.
    """
    _print_summary(_run(parsed(Job, job, "--job"), output_dir, state_dir, tensorboard=tensorboard))


def _compare_command(_: list[str]) -> Callable[..., None]:
    """`compare` with the flags of a run and --no-show."""
    flags = flat_flags("CompareFlags", RunFlags())

    def compare(flags: tyro.conf.OmitArgPrefixes[flags], no_show: bool = False) -> None:  # type: ignore[valid-type]
        """Train PPO, then TRPO, with the same seed on one environment, and draw both.

        Hyperparameters come from the presets. Writes ppo_vs_trpo_comparison.png and
        training_metrics.npz (ppo_rewards, trpo_rewards: the return of each episode), and the
        files of both runs.

        Args:
            flags: The run.
            no_show: Do not open a window with the figure.
        """
        from rlbench.analysis.drawing import save_figure, show_figure
        from rlbench.analysis.figures import draw_comparison

        values = {f: getattr(flags, f) for f in flags.__dataclass_fields__}  # type: ignore[attr-defined]
        run = validated(RunFlags, values, "flags")
        jobs = {name: job_from(run, {"name": name}) for name in ("ppo", "trpo")}
        done = {name: _run(j, run.output_dir / name) for name, j in jobs.items()}
        returns = {n: [row.episode_return for row in f.log.episodes] for n, f in done.items()}
        for finished in done.values():
            _print_summary(finished)
        print(f"wrote {_save_returns(returns, run.output_dir / 'training_metrics.npz')}")
        path = run.output_dir / "ppo_vs_trpo_comparison.png"
        print(f"wrote {save_figure(draw_comparison(returns, run.env_name), path)}")
        if not no_show:
            show_figure(path)

    return compare


def throughput(job: str, output_dir: Path = Path("outputs"), state_dir: Path | None = None) -> None:
    """Time full updates of one job, as the workflow does; leave the machine alone meanwhile.

    Args:
        job: The measurement as JSON: a job, updates, warmup_updates, repeats.
        output_dir: Folder for the files of the measurement.
        state_dir: Folder for `failure.json`, the reason if it fails; by default none is kept.
    """
    from rlbench.training.throughput import measure

    timing = parsed(ThroughputJob, job, "--job")
    facts = measure(timing, output_dir, _command_line(), state_dir)
    print(f"{facts.actual_steps / facts.wall_s:,.0f} steps/s, warm-up included; wrote {output_dir}")


def evaluate(
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")],
    policy: PolicyName = "last",
    episodes: Annotated[int | None, tyro.conf.arg(metavar="N")] = None,
    render: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
) -> None:
    """Play the evaluation of a finished run again, from its saved policy.

    By default exactly the run's own episodes, from the same start states and without noise; they
    must be those that the run recorded, or the exit code is 1.

    Args:
        run: Folder of a run, with run.json and the policies in it.
        policy: The policy at the end of the run, or that of its best evaluation.
        episodes: Episodes to play, from the start of the run's list of start states; by default as
            many as the run's own evaluation. Another number is not compared.
        render: Also film the first episode, as an .mp4 or a .gif.
    """
    from rlbench.training.replay import replay
    from rlbench.training.summary import summary_of_replay

    done = replay(run, policy, episodes, render)
    print(summary_of_replay(done))
    if render is not None:
        print(f"wrote {render}")
    if done.difference:
        raise RunFailed(f"{run}: {done.difference}")


def _run(
    job: Job, folder: Path, state: Path | None = None, *, tensorboard: bool = False
) -> "Finished":
    from rlbench.training.progress import Progress
    from rlbench.training.tracking import TensorBoard
    from rlbench.training.train import train

    with TensorBoard(folder) if tensorboard else nullcontext() as tracker:
        return train(job, folder, Progress(tracker=tracker), _command_line(), state)


def _print_summary(finished: "Finished") -> None:
    from rlbench.training.summary import summary_of_run

    print(summary_of_run(finished))


def _save_returns(returns: dict[str, list[float]], path: Path) -> Path:
    import io

    import numpy as np

    stream = io.BytesIO()
    arrays: dict[str, Any] = {f"{name}_rewards": np.array(r) for name, r in returns.items()}
    np.savez(stream, **arrays)
    return write_whole(path, stream.getvalue())


# -- analysis ----------------------------------------------------------------------------------


def aggregate(
    results: tyro.conf.Positional[Path], benchmark: str = "", output: Path | None = None
) -> None:
    """Gather all runs of a results folder into tidy tables (parquet).

    Args:
        results: Folder of one benchmark, such as results/smoke.
        benchmark: The plan as JSON, as the workflow gives it; by default the folder's own
            benchmark.json.
        output: Folder for the tables; by default the results folder itself.
    """
    from rlbench.analysis.aggregate import gather, read_plan, write_plan, write_tables

    folder = output or results
    plan = parsed(Plan, benchmark, "--benchmark") if benchmark else read_plan(results)
    for path in [write_plan(plan, folder), *write_tables(gather(plan, results), folder)]:
        print(f"wrote {path}")


def tables(results: tyro.conf.Positional[Path]) -> None:
    """Write the tables of a results folder (CSV and Markdown); `rlbench aggregate` goes first.

    Args:
        results: Folder of one benchmark, such as results/smoke.
    """
    from rlbench.analysis.aggregate import read_plan, read_tables
    from rlbench.analysis.tables import TABLES, as_markdown

    plan, tidy = read_plan(results), read_tables(results)
    for name, make in TABLES.items():
        table = make(tidy, plan)
        write_whole(results / "tables" / f"{name}.csv", table.to_csv(index=False).encode())
        path = results / "tables" / f"{name}.md"
        print(f"wrote {write_whole(path, as_markdown(table).encode())} and .csv")


def figures(results: tyro.conf.Positional[Path]) -> None:
    """Draw the figures of a results folder (SVG, PNG, PDF); `rlbench aggregate` goes first.

    Args:
        results: Folder of one benchmark, such as results/smoke.
    """
    from rlbench.analysis.aggregate import read_plan, read_tables
    from rlbench.analysis.drawing import save_drawings
    from rlbench.analysis.figures import draw_all

    drawings = draw_all(read_tables(results), read_plan(results))
    for path in save_drawings(drawings, results / "figures"):
        print(f"wrote {path}")


def report(
    results: tyro.conf.Positional[Path], output: Path | None = None, allow_mixed: bool = False
) -> None:
    """Write the report of a results folder: one HTML file that needs no network.

    Args:
        results: Folder of one benchmark, such as results/smoke.
        output: The page to write; by default report.html in the folder.
        allow_mixed: Accept runs of different versions of the training code side by side.
    """
    from rlbench.analysis.aggregate import read_plan, read_tables
    from rlbench.analysis.report import write_report

    path = output or results / "report.html"
    plan, tidy = read_plan(results), read_tables(results)
    write_report(plan, tidy, results, path, allow_mixed=allow_mixed)
    print(f"wrote {path}")


# -- trusting -------------------------------------------------------------------------------------


def verify(
    results: tyro.conf.Positional[Path],
    cells: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[CELL ...]")
    ] = (),
    output_dir: Path | None = None,
) -> None:
    """Run finished runs again, and say whether they are equal here to the last bit.

    Each is run by the job and under the environment variables that its run.json has, and compared
    in every column that is not a clock reading. Said too: where the recorded job is not the one
    that plan and presets give now, and where machine and versions differ from the record.

    Exit code 0: all are equal. 1: one is not, cannot be run
    here, or has another job than the plan's.

    Args:
        results: Folder of one benchmark, such as results/smoke; or of one run.
        cells: ALGORITHM/ENVIRONMENT/NUM_ENVS/DEVICE/SEED; by default the first seed of each arm.
        output_dir: Folder in which to keep the new runs; by default they are thrown away.
    """
    from rlbench.verify import verdicts

    with nullcontext(output_dir) if output_dir else tempfile.TemporaryDirectory() as workplace:
        failed = 0
        for verdict in verdicts(results, cells, Path(workplace)):
            print(verdict.text, flush=True)
            failed += not verdict.passed
    if failed:
        raise RunFailed(f"{results}: {failed} of the chosen runs cannot be confirmed")


def export(results: tyro.conf.Positional[Path], output: Path | None = None) -> None:
    """Pack a results folder into a zip with a manifest of hashes, to be archived and cited.

    The same files give the same bytes. SHA256SUMS in it lists every file: unpacked, `sha256sum
    --check SHA256SUMS` says whether they are as they were. Logs and the workflow's own state stay.

    Args:
        results: Folder of one benchmark, such as results/smoke.
        output: The file to write; by default the folder's name and .zip, beside it.
    """
    from rlbench.archive import export as pack

    target = output or results.resolve().parent / f"{results.resolve().name}.zip"
    packed = pack(results, target)
    print(f"wrote {target}: {packed.files:,} files, {packed.runs:,} finished learning runs")
    print(f"sha256 {packed.sha256}")


# -- looking -----------------------------------------------------------------------------------


def info(devices: bool = False, json: bool = False, environments: tuple[str, ...] = ()) -> None:
    """Describe this machine and its software as they are recorded with each run.

    Args:
        devices: Print only the devices that a run can use, one per line; why not the others goes
            to standard error.
        json: With --devices: print both as JSON.
        environments: Make each of these once, to see that runs can have them.
    """
    _require_environments(environments)
    if not devices:
        record = {"machine": describe_machine(), "software": describe_software()}
        print(dumps({key: part.model_dump(mode="json") for key, part in record.items()}, indent=1))
        return
    here = devices_here()
    if json:
        print(here.model_dump_json())
        return
    print("\n".join(here.present))
    for device, reason in here.missing.items():
        print(f"{device}: {reason}", file=sys.stderr)


def _require_environments(environments: Sequence[str], mode: VectorMode = "sync") -> None:
    """Refuse an environment that cannot be made so, or that no policy here can play."""
    if environments:
        from rlbench.training.envs.vector import inspect

        for environment in environments:
            inspect(environment, mode, 1)


def check(config: tyro.conf.Positional[Path], list_cells: bool = False) -> None:
    """Validate a benchmark's config; print the number of cells and an estimate of time and disk.

    Args:
        config: A YAML file such as config/smoke.yaml; config/README.md explains the keys.
        list_cells: Print every cell of the grid too.
    """
    from rlbench.spec.estimate import estimate

    plan = make_plan(load_benchmark(config), devices_here(), str(config))
    _require_environments(plan.benchmark.environments, plan.benchmark.vector_mode)
    if list_cells:
        print("\n".join(cell.path for cell in plan.cells))
    print(estimate(plan.benchmark, plan.cells, usable_cores()))


def show_job(
    config: tyro.conf.Positional[Path], cell: tyro.conf.Positional[str], json: bool = False
) -> None:
    """Print the job of one cell: every value, and where it came from.

    Args:
        config: A YAML file such as config/smoke.yaml.
        cell: ALGORITHM/ENVIRONMENT/NUM_ENVS/DEVICE/SEED, as `rlbench check --list-cells` prints.
        json: Print the job as JSON only, for `rlbench train --job`.
    """
    benchmark = load_benchmark(config)
    chosen = Cell.from_path(cell)
    if chosen not in cells(benchmark, devices_here()):
        raise InputError(
            f"got cell '{cell}', which is not in the grid of {config}; "
            f"`rlbench check {config} --list-cells` lists it"
        )
    shown = job(benchmark, chosen, str(config))
    if json:
        print(shown.model_dump_json())
        return
    given = benchmark.hyperparameters.get(chosen.algorithm, {})
    _, origins = resolve(chosen.algorithm, chosen.environment, given, str(config))
    written = benchmark.model_fields_set
    for key, value in shown.model_dump(exclude={"algorithm", "num_episodes"}).items():
        origin = "cell" if key in Cell.__dataclass_fields__ else str(config)
        print(_origin_line(key, value, origin if origin == "cell" or key in written else "default"))
    for key, value in shown.algorithm.model_dump().items():
        print(_origin_line(f"algorithm.{key}", value, "cell" if key == "name" else origins[key]))


def _origin_line(key: str, value: Any, origin: str) -> str:
    return f"{key:<34} {value!s:<14} {origin}"


def _command_line() -> str:
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


COMMANDS: dict[str, Callable[[list[str]], Callable[..., None]]] = {
    "train": _train_command,
    "compare": _compare_command,
    "evaluate": lambda _: evaluate,
    "throughput": lambda _: throughput,
    "aggregate": lambda _: aggregate,
    "tables": lambda _: tables,
    "figures": lambda _: figures,
    "report": lambda _: report,
    "verify": lambda _: verify,
    "export": lambda _: export,
    "info": lambda _: info,
    "check": lambda _: check,
    "show-job": lambda _: show_job,
}
"""Each command by name, made once the command line is known."""

if __name__ == "__main__":
    sys.exit(main())
