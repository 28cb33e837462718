"""The looks of every figure, and figures as files.

In:      a plan.
Out:     empty figures in one visual language; drawings with their words, written and read back.

Colour is the algorithm, line style the device, panels are environments and num_envs. Sizes are
those of print: 7 inches is a double column, text 7 to 8 points.
"""

import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from rlbench.analysis.words import count_of_environments, thousands
from rlbench.records import read_text, write_whole
from rlbench.spec.plan import Plan
from rlbench.spec.registry import ALGORITHMS

WORDS = "figures.json"
WIDTH_IN = 7.0
"""Double column of a paper."""
LEGEND_IN = 1.15
"""Room for one entry of a legend, which takes more rows where there are more."""
COLOURS = dict(zip(ALGORITHMS, cycle(sns.color_palette("colorblind")), strict=False))
STYLES: dict[str, Literal["-", "--"]] = {"cpu": "-", "cuda": "--"}
STYLE = {
    **sns.axes_style("ticks"),
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "figure.titlesize": 9,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "axes.linewidth": 0.8,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "svg.hashsalt": "rlbench",
    "svg.fonttype": "path",
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """One figure and its words."""

    name: str
    """File name without ending."""
    title: str
    figure: Figure
    caption: str
    """What is shown, n, and what a band means."""
    alt: str
    """The main numbers, for those who do not see the figure."""


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure, or leave no file; the same figure gives the same bytes."""
    stream = io.BytesIO()
    metadata: dict[str, Any] = {
        ".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}
    }[path.suffix]  # fmt: skip
    with mpl.rc_context(STYLE):
        figure.savefig(stream, format=path.suffix[1:], dpi=200, metadata=metadata)
    return write_whole(path, stream.getvalue())


def save_drawings(drawings: Sequence[Drawing], folder: Path) -> list[Path]:
    """Write each drawing as SVG, PNG and PDF, and the words of all as `figures.json`."""
    words = [
        {"name": d.name, "title": d.title, "caption": d.caption, "alt": d.alt} for d in drawings
    ]
    files = [path for drawing in drawings for path in _save_formats(drawing, folder)]
    return [*files, write_whole(folder / WORDS, json.dumps(words, indent=1).encode())]


def _save_formats(drawing: Drawing, folder: Path) -> list[Path]:
    """SVG, PNG and PDF of one drawing, all in the layout of the first: it costs most."""
    first = save_figure(drawing.figure, folder / f"{drawing.name}.svg")
    drawing.figure.set_layout_engine("none")
    others = [f"{drawing.name}.{ending}" for ending in ("png", "pdf")]
    return [first, *(save_figure(drawing.figure, folder / name) for name in others)]


def read_words(folder: Path) -> list[dict[str, str]]:
    """The words of the drawings in a folder: name, title, caption, alt.

    Raises:
        InputError: there are none; `rlbench figures` makes them.
    """
    words: list[dict[str, str]] = json.loads(
        read_text(folder / WORDS, f"`rlbench figures {folder.parent}` makes it")
    )
    return words


def show_figure(path: Path) -> bool:
    """Show a picture in a window if there is a display; whether it was shown. Never fails."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    import matplotlib.pyplot as plt

    try:
        figure = plt.figure(figsize=(10, 4))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.imshow(plt.imread(path))
        axes.axis("off")
        plt.show()
    except Exception:  # noqa: BLE001 (a broken display must not spoil a finished run)
        return False
    return True


def panel_grid(plan: Plan, xlabel: str, ylabel: str) -> tuple[Figure, dict[tuple[str, int], Axes]]:
    """A panel per environment (rows) and num_envs (columns)."""
    rows, columns = plan.benchmark.environments, plan.benchmark.num_envs
    width = min(WIDTH_IN, 1.0 + 2.6 * len(columns))
    figure = Figure((width, 0.5 + 2.1 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(columns), sharey="row", sharex="row", squeeze=False)
    panels = {}
    for i, environment in enumerate(rows):
        grid[i, 0].set_ylabel(f"{environment}\n{ylabel}")
        for j, num_envs in enumerate(columns):
            grid[0, j].set_title(count_of_environments(num_envs))
            panels[environment, num_envs] = grid[i, j]
    figure.align_ylabels()
    for axes in grid[-1]:
        axes.set_xlabel(xlabel)
    return figure, panels


def bar_panels(labels: Mapping[str, Sequence[str]], xlabel: str) -> tuple[Figure, dict[str, Axes]]:
    """A panel per environment with a row per label, the first on top; each has its own scale."""
    heights = [0.5 + 0.22 * len(names) for names in labels.values()]
    figure = Figure((WIDTH_IN * 0.75, 0.6 + sum(heights)), layout="constrained")
    column = figure.subplots(len(labels), height_ratios=heights, squeeze=False)[:, 0]
    for axes, (environment, names) in zip(column, labels.items(), strict=True):
        axes.set_title(environment)
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
        axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    column[-1].set_xlabel(xlabel)
    return figure, dict(zip(labels, column, strict=True))


def add_legend(figure: Figure, plan: Plan) -> None:
    """One legend for the whole figure: algorithms, and devices if there are two."""
    handles = [
        Line2D([], [], color=COLOURS[name], label=name.upper())
        for name in plan.benchmark.algorithms
    ]
    if len(plan.devices) > 1:
        handles += [
            Line2D([], [], color="0.2", linestyle=STYLES[device], label=device)
            for device in plan.devices
        ]
    columns = min(len(handles), int(figure.get_figwidth() / LEGEND_IN))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)


def log_ticks(axes: Axes) -> None:
    """Ticks at 1, 2 and 5 of each decade of a logarithmic y axis, as plain numbers."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(thousands))
