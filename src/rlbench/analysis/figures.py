"""The figures of a report: drawn from statistics, computing none.

In:      tidy tables and the plan.
Out:     drawings, each with its caption and its text for those who do not see it. A new figure is
         one function and one line in `FIGURES`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator

from rlbench.analysis.aggregate import ARM, CELL, Tables
from rlbench.analysis.drawing import (
    COLOURS,
    STYLE,
    STYLES,
    WIDTH_IN,
    Drawing,
    add_legend,
    bar_panels,
    log_ticks,
    panel_grid,
)
from rlbench.analysis.statistics import binned, curve, speed, trailing_mean, training_curve
from rlbench.analysis.words import arm_label, bar_label, count_of_environments, readable, thousands
from rlbench.spec.grid import slug
from rlbench.spec.plan import Plan

MANY_SEEDS = 5
"""Up to so many seeds, each is drawn as a thin line of its own."""
MOST_DOTS = 5000
"""Up to so many dots are drawn of an arm."""
MOST_POINTS = 1000
"""Points of a line; a panel has no more pixels across."""
WINDOW = 20
"""Episodes in the trailing mean of training returns."""
PHASES = {"env_s": "environment", "policy_s": "policy", "update_s": "update", "other_s": "other"}
PHASE_COLOURS = dict(zip(PHASES, sns.color_palette("colorblind")[2:], strict=False))
DIAGNOSTICS = {
    "kl_nats": "KL, old to new\n(nats)",
    "surrogate": "surrogate (PPO)\nor gain (TRPO)",
    "critic_loss": "critic loss",
    "explained_variance": "explained\nvariance",
    "entropy_nats": "entropy (nats)",
    "clip_fraction": "clip fraction\n(PPO)",
    "line_search_success": "line search\nsuccess (TRPO)",
}
Draw = Callable[[Tables, Plan], list[Drawing]]


def evaluation_return(tables: Tables, plan: Plan) -> list[Drawing]:
    """Return of the deterministic policy against environment steps, and against seconds."""
    curves = curve(tables.evaluations)
    return [_against_steps(curves, tables, plan), _against_seconds(curves, tables, plan)]


def _against_steps(curves: pd.DataFrame, tables: Tables, plan: Plan) -> Drawing:
    figure, panels = panel_grid(plan, "environment steps", "evaluation return")
    here, seeds = _by_panel(curves), _by_panel(tables.evaluations)
    for (environment, num_envs), axes in panels.items():
        _draw_curves(axes, here[environment, num_envs], "env_steps")
        _draw_seeds(axes, seeds[environment, num_envs], plan)
        _draw_threshold(axes, plan, environment)
        axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    add_legend(figure, plan)
    return Drawing(
        "evaluation_return",
        "Return against environment steps",
        figure,
        f"Return of {plan.benchmark.eval_episodes} deterministic evaluation episodes, on the "
        f"same start states each time. {_band(curves)}"
        + (" Thin lines: seeds." if _few_seeds(plan) else ""),
        _last_points(curves),
    )


def _against_seconds(curves: pd.DataFrame, tables: Tables, plan: Plan) -> Drawing:
    """The same curves against seconds alone on the machine."""
    curves = curves.merge(speed(tables.timings)[[*ARM, "steps_per_s"]], on=ARM, how="inner")
    curves["seconds"] = curves["env_steps"] / curves["steps_per_s"]
    figure, panels = panel_grid(plan, "training time (s)", "evaluation return")
    here = _by_panel(curves)
    for (environment, num_envs), axes in panels.items():
        _draw_curves(axes, here[environment, num_envs], "seconds")
        _draw_threshold(axes, plan, environment)
    add_legend(figure, plan)
    return Drawing(
        "return_against_seconds",
        "Return against seconds",
        figure,
        "Seconds are environment steps over the steps/s of the throughput runs, which had the "
        f"machine alone; evaluations and start-up are not counted. {_band(curves)}"
        + (" An arm needs both kinds of runs to be shown." if curves.empty else ""),
        _last_points(curves, "seconds", "s"),
    )


def training_return(tables: Tables, plan: Plan) -> list[Drawing]:
    """Return of the training episodes, with exploration noise."""
    figure, panels = panel_grid(plan, "training episode", "training return")
    rows = training_curve(tables.episodes, WINDOW)
    here = _by_panel(rows)
    for place, axes in panels.items():
        for algorithm, device, arm in _arms(here[place]):
            colour, style = COLOURS[algorithm], STYLES[device]
            dots = arm.iloc[:: -(-len(arm) // MOST_DOTS)]
            axes.plot(
                dots["episode"], dots["episode_return"], ".", ms=2.5, alpha=0.35, color=colour,
                mec="none", rasterized=True, zorder=1.9,  # under all lines: one raster per panel
            )  # fmt: skip
            by_episode = arm.groupby("episode")["trailing_mean"]
            mean = by_episode.mean()[by_episode.size() == arm["seed"].nunique()]
            line = binned(mean.reset_index(), MOST_POINTS)
            axes.plot(line["episode"], line["trailing_mean"], style, color=colour)
    add_legend(figure, plan)
    return [
        Drawing(
            "training_return",
            "Training return by episode",
            figure,
            "Dots: undiscounted raw return of every training episode of every seed, or of "
            f"evenly chosen ones where an arm has more than {MOST_DOTS:,}. Lines: trailing mean "
            f"of {WINDOW} episodes, averaged over seeds ({_seeds(rows)}) as far as all of them "
            f"have episodes{_resampled(rows['episode'])}.",
            _last_means(rows),
        )
    ]


def diagnostics(tables: Tables, plan: Plan) -> list[Drawing]:
    """What the updates did, one figure per environment."""
    drawings = []
    for environment in plan.benchmark.environments:
        here = tables.updates[tables.updates["environment"] == environment]
        columns = plan.benchmark.num_envs
        figure = Figure((WIDTH_IN, 1.0 * len(DIAGNOSTICS) + 0.5), layout="constrained")
        grid = figure.subplots(
            len(DIAGNOSTICS), len(columns), sharex="col", sharey="row", squeeze=False
        )
        for column, num_envs in enumerate(columns):
            means = _update_means(here[here["num_envs"] == num_envs])
            grid[0, column].set_title(count_of_environments(num_envs))
            for line, (quantity, label) in enumerate(DIAGNOSTICS.items()):
                axes = grid[line, column]
                _draw_diagnostic(axes, means, quantity)
                if column == 0:
                    axes.set_ylabel(label)
            grid[-1, column].set_xlabel("environment steps")
            grid[-1, column].xaxis.set_major_formatter(FuncFormatter(thousands))
        figure.align_ylabels()
        add_legend(figure, plan)
        drawings.append(
            Drawing(
                f"diagnostics-{slug(environment)}",
                f"Training diagnostics on {environment}",
                figure,
                f"Mean over seeds ({_seeds(here)}) of each update's own numbers: what the step "
                "that was taken did. KL is the exact mean divergence over the batch; a rejected "
                "TRPO step counts as 0. Critic loss on a logarithmic axis"
                f"{_resampled(here['update'])}.",
                _diagnostic_words(here),
            )
        )
    return drawings


def throughput(tables: Tables, plan: Plan) -> list[Drawing]:
    """Steps per second against the number of environments."""
    rates = speed(tables.timings)
    environments = plan.benchmark.environments
    figure = Figure((min(WIDTH_IN, 0.6 + 3.2 * len(environments)), 2.8), layout="constrained")
    row = figure.subplots(1, len(environments), sharey=True, squeeze=False)[0]
    for axes, environment in zip(row, environments, strict=True):
        here = rates[rates["environment"] == environment]
        for algorithm, device, arm in _arms(here, ["algorithm", "device"]):
            spread = [arm["steps_per_s"] - arm["lowest"], arm["highest"] - arm["steps_per_s"]]
            axes.errorbar(
                arm["num_envs"], arm["steps_per_s"], spread, fmt=f"o{STYLES[device]}",
                color=COLOURS[algorithm], ms=3.5, capsize=2,
            )  # fmt: skip
        _draw_ideal(axes, here)
        axes.set(title=environment, xlabel="num_envs", xscale="log", yscale="log")
        axes.set_xticks(plan.benchmark.num_envs, [str(n) for n in plan.benchmark.num_envs])
        axes.xaxis.set_minor_locator(NullLocator())
        log_ticks(axes)
    if not rates.empty:
        row[0].set_ylim(rates["lowest"].min() * 0.8, rates["highest"].max() * 1.5)
    row[0].set_ylabel("training steps/s")
    add_legend(figure, plan)
    return [
        Drawing(
            "throughput",
            "Throughput against the number of environments",
            figure,
            "Environment steps per second of full updates, alone on the machine: median, bars from "
            f"slowest to fastest timed update ({_n(rates['n'])}); warm-up, the first of each "
            f"repeat ({plan.benchmark.throughput.warmup_updates}), is left out. "
            "Dotted: proportional to num_envs. Batch size "
            f"{'grows with num_envs' if plan.benchmark.batch_scaling == 'linear' else 'is fixed'}.",
            _rate_words(rates),
        )
    ]


def phases(tables: Tables, plan: Plan) -> list[Drawing]:
    """Where the time of an update goes."""
    rates = speed(tables.timings)
    rates["other_s"] = rates["wall_s"] - rates[["env_s", "policy_s", "update_s"]].sum(axis=1)
    here = {name: rates[rates["environment"] == name] for name in plan.benchmark.environments}
    labels = {name: [bar_label(arm) for _, arm in rows.iterrows()] for name, rows in here.items()}
    figure, panels = bar_panels(labels, "microseconds per environment step")
    for name, axes in panels.items():
        left = np.zeros(len(here[name]))
        for phase in PHASES:
            width = (here[name][phase] / here[name]["steps"] * 1e6).clip(lower=0).to_numpy()
            axes.barh(
                range(len(left)), width, left=left, color=PHASE_COLOURS[phase], height=0.7,
                linewidth=0,
            )  # fmt: skip
            left += width
    handles = [Patch(color=PHASE_COLOURS[p], label=name) for p, name in PHASES.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return [
        Drawing(
            "phases",
            "Where the time goes",
            figure,
            f"Median over timed updates ({_n(rates['n'])}) of the time in each phase, per "
            "environment step, alone on the machine. Policy: choosing actions and "
            "state values, with the environments where both are one program (vector mode fused); "
            "update: advantages and gradient steps; other: what no phase claims.",
            _listed(
                f"{arm_label(arm)}: {arm['update_s'] / arm['wall_s']:.0%} update, "
                f"{arm['env_s'] / arm['wall_s']:.0%} environment"
                for _, arm in rates.iterrows()
            ),
        )
    ]


def wall_clock(tables: Tables, plan: Plan) -> list[Drawing]:
    """Wall time of every learning run."""
    done = tables.cells[tables.cells["status"] == "ok"]
    here = {
        name: list(_arms(done[done["environment"] == name])) for name in plan.benchmark.environments
    }
    labels = {name: [bar_label(arm.iloc[0]) for *_, arm in arms] for name, arms in here.items()}
    figure, panels = bar_panels(labels, "wall time of a learning run (s)")
    for name, axes in panels.items():
        for position, (algorithm, _, arm) in enumerate(here[name]):
            colour = COLOURS[algorithm]
            axes.barh(position, arm["wall_s"].mean(), color=colour, alpha=0.35, height=0.7)
            axes.plot(arm["wall_s"], [position] * len(arm), "o", ms=3, color=colour)
    return [
        Drawing(
            "wall_clock",
            "Wall time of the learning runs",
            figure,
            f"Bars: mean over seeds ({_seeds(done)}); dots: seeds. From the first environment step "
            "to the last update, evaluations included. They shared the machine: see throughput for "
            "speed.",
            _listed(
                f"{arm_label(arm.iloc[0])}: {readable(arm['wall_s'].mean())} s"
                for *_, arm in _arms(done)
            ),
        )
    ]


FIGURES: tuple[Draw, ...] = (
    evaluation_return,
    training_return,
    throughput,
    phases,
    wall_clock,
    diagnostics,
)
"""Every figure of a report, in its order."""


def draw_all(tables: Tables, plan: Plan) -> list[Drawing]:
    """Every drawing of a report."""
    with mpl.rc_context(STYLE):
        return [drawing for draw in FIGURES for drawing in draw(tables, plan)]


def draw_comparison(returns: Mapping[str, Sequence[float]], environment: str) -> Figure:
    """Training returns of two runs: raw and smoothed on the left, smoothed alone on the right."""
    with mpl.rc_context(STYLE):
        figure = Figure((WIDTH_IN, 2.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        for name, values in returns.items():
            episodes, colour = np.arange(1, len(values) + 1), COLOURS[name]
            smooth = trailing_mean(np.asarray(values), WINDOW)
            left.plot(episodes, values, color=colour, alpha=0.3, linewidth=0.8)
            left.plot(episodes, smooth, color=colour)
            right.plot(episodes, smooth, color=colour, label=name.upper())
        left.set(title="every episode, and trailing mean", ylabel="training return")
        right.set(title=f"trailing mean of {WINDOW} episodes", ylabel="training return")
        for axes in (left, right):
            axes.set_xlabel("training episode")
        figure.suptitle(f"{' and '.join(n.upper() for n in returns)} on {environment}, one seed")
        figure.legend(loc="outside lower center", ncols=len(returns))
        return figure


def _draw_curves(axes: Axes, curves: pd.DataFrame, x: str) -> None:
    for algorithm, device, arm in _arms(curves):
        axes.plot(arm[x], arm["point"], STYLES[device], color=COLOURS[algorithm])
        axes.fill_between(
            arm[x], arm["low"], arm["high"], color=COLOURS[algorithm], alpha=0.2, linewidth=0
        )


def _draw_seeds(axes: Axes, evaluations: pd.DataFrame, plan: Plan) -> None:
    if not _few_seeds(plan):
        return
    for algorithm, device, run in _arms(evaluations, CELL):
        axes.plot(
            run["env_steps"], run["episode_return"], STYLES[device], color=COLOURS[algorithm],
            linewidth=0.5, alpha=0.6,
        )  # fmt: skip


def _draw_threshold(axes: Axes, plan: Plan, environment: str) -> None:
    threshold = plan.benchmark.thresholds.get(environment)
    if threshold is not None:
        axes.axhline(threshold, color="0.35", linewidth=0.8, linestyle=":")


def _update_means(rows: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Algorithm, device and mean over seeds of each arm's updates."""
    quantities = ["env_steps", *DIAGNOSTICS]
    return [
        (algorithm, device, binned(arm.groupby("update")[quantities].mean(), MOST_POINTS))
        for algorithm, device, arm in _arms(rows)
    ]


def _draw_diagnostic(
    axes: Axes, means: Iterable[tuple[str, str, pd.DataFrame]], quantity: str
) -> None:
    for algorithm, device, arm in means:
        known = arm[["env_steps", quantity]].dropna()
        axes.plot(
            known["env_steps"], known[quantity], STYLES[device], color=COLOURS[algorithm],
            linewidth=1,
        )  # fmt: skip
    if quantity == "critic_loss":
        axes.set_yscale("log")
        log_ticks(axes)
    if quantity == "line_search_success":
        axes.set_ylim(-0.1, 1.1)


def _draw_ideal(axes: Axes, rates: pd.DataFrame) -> None:
    if rates.empty:
        return
    ends = np.array([rates["num_envs"].min(), rates["num_envs"].max()])
    slowest = rates[rates["num_envs"] == ends[0]]["steps_per_s"].min()
    axes.plot(ends, slowest * ends / ends[0], ":", color="0.35", linewidth=0.8)


def _by_panel(rows: pd.DataFrame) -> Mapping[tuple[str, int], pd.DataFrame]:
    """The rows of each environment and num_envs; none where there are none."""
    groups: Any = rows.groupby(["environment", "num_envs"], sort=False)
    return defaultdict(lambda: rows[:0], dict(iter(groups)))


# -- words -------------------------------------------------------------------------------------


def _n(counts: "pd.Series[int]") -> str:
    """`n = 3`, or `n = 2 to 3` where the arms differ."""
    if counts.empty:
        return "none has finished"
    fewest, most = int(counts.min()), int(counts.max())
    return f"n = {most}" if fewest == most else f"n = {fewest} to {most}"


def _seeds(rows: pd.DataFrame) -> str:
    return _n(rows.groupby(ARM)["seed"].nunique())


def _resampled(positions: "pd.Series[int]") -> str:
    """What is said of lines that are resampled, given the positions of their points from 0."""
    many = len(positions) > 0 and positions.max() >= MOST_POINTS
    return f"; lines are means over equal parts, at most {MOST_POINTS:,}" if many else ""


def _few_seeds(plan: Plan) -> bool:
    return len(plan.benchmark.seeds) <= MANY_SEEDS


def _band(curves: pd.DataFrame) -> str:
    if curves.empty:
        return "Nothing to show."
    dotted = "dotted: threshold, where one is set."
    if curves["n"].max() == 1:
        return f"Line: the only seed (n = 1), so there is no interval; {dotted}"
    return (
        f"Line: interquartile mean over seeds ({_n(curves['n'])}); band: 95 % bootstrap "
        f"interval over seeds; {dotted}"
    )


def _listed(parts: Iterable[str]) -> str:
    return "; ".join(parts) or "nothing to show"


def _last_points(curves: pd.DataFrame, x: str = "env_steps", unit: str = "steps") -> str:
    return _listed(
        f"{arm_label(arm.iloc[-1])}: {readable(arm['point'].iloc[-1])} after "
        f"{readable(arm[x].iloc[-1])} {unit}"
        for *_, arm in _arms(curves)
    )


def _last_means(rows: pd.DataFrame) -> str:
    return _listed(
        f"{arm_label(arm.iloc[-1])}: trailing mean "
        f"{readable(arm.groupby('seed')['trailing_mean'].last().mean())} at the end"
        for *_, arm in _arms(rows)
    )


def _diagnostic_words(updates: pd.DataFrame) -> str:
    return _listed(
        f"{arm_label(arm.iloc[-1])}: mean KL {arm['kl_nats'].mean():.2g}, entropy from "
        f"{readable(entropy.iloc[0])} to {readable(entropy.iloc[-1])}"
        for *_, arm in _arms(updates)
        for entropy in [arm.groupby("update")["entropy_nats"].mean()]
    )


def _rate_words(rates: pd.DataFrame) -> str:
    return _listed(f"{arm_label(r)}: {r['steps_per_s']:,.0f} steps/s" for _, r in rates.iterrows())


def _arms(
    rows: pd.DataFrame, by: Sequence[str] = tuple(ARM)
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Algorithm, device and rows of each group, in the order of the rows."""
    for _, group in rows.groupby(list(by), sort=False):
        yield str(group["algorithm"].iloc[0]), str(group["device"].iloc[0]), group
