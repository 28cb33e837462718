"""What is drawn, read back from the figures: numbers by hand, labels, legends, words, bytes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from results_folder import (
    ENVIRONMENT,
    RETURNS,
    handmade,
    make_benchmark,
    plan_of,
    write_learning,
    write_timings,
)
from rlbench.analysis.aggregate import gather
from rlbench.analysis.drawing import (
    COLOURS,
    Drawing,
    read_words,
    save_drawings,
    save_figure,
    show_figure,
)
from rlbench.analysis.figures import DIAGNOSTICS, draw_all, draw_comparison
from rlbench.spec.grid import arms
from rlbench.spec.plan import Plan

NAMES = [
    "evaluation_return",
    "return_against_seconds",
    "training_return",
    "throughput",
    "phases",
    "wall_clock",
    f"diagnostics-{ENVIRONMENT}",
]
Drawings = dict[str, Drawing]


def drawn(folder: Path, plan: Plan) -> Drawings:
    return {drawing.name: drawing for drawing in draw_all(gather(plan, folder), plan)}


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Drawings:
    folder = tmp_path_factory.mktemp("results")
    return drawn(folder, handmade(folder))


def panels(drawing: Drawing) -> list[Axes]:
    return drawing.figure.axes


def line(axes: Axes, algorithm: str, width: float = 1.4) -> tuple[list[float], list[float]]:
    """Points of the algorithm's line of this width."""
    (found,) = (
        one
        for one in axes.lines
        if one.get_color() == COLOURS[algorithm]
        and one.get_linestyle() != "None"
        and one.get_linewidth() == width
    )
    x, y = (np.asarray(data, float).tolist() for data in found.get_data())
    return x, y


def bars(axes: Axes) -> list[float]:
    return [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]


def test_every_figure_is_there_in_its_order(drawings: Drawings) -> None:
    assert list(drawings) == NAMES


def test_curves_by_hand(drawings: Drawings) -> None:
    """PPO with 1: means of (0, 0, 0), (50, 150, 100), (100, 200, 300)."""
    one, eight = panels(drawings["evaluation_return"])
    assert line(one, "ppo") == ([0, 1000, 2000], [0, 100, 200])
    assert line(one, "trpo") == ([0, 1000, 2000], [0, 110, 200])
    assert line(eight, "trpo") == ([0, 1000, 2000], [0, 100, 210])


def test_bands_seeds_and_threshold(drawings: Drawings) -> None:
    one, _ = panels(drawings["evaluation_return"])
    assert [band.get_datalim(one.transData).y1 for band in one.collections] == [300, 310]
    assert sum(each.get_linewidth() == 0.5 for each in one.lines) == 3 + 2
    (threshold,) = (each for each in one.lines if each.get_linestyle() == ":")
    assert set(np.asarray(threshold.get_ydata())) == {150.0}


def test_seconds_are_steps_over_speed(drawings: Drawings) -> None:
    """50 steps/s with one environment, 250 with eight."""
    one, eight = panels(drawings["return_against_seconds"])
    assert line(one, "ppo") == ([0, 20, 40], [0, 100, 200])
    assert line(eight, "ppo")[0] == [0, 4, 8]


def test_training_curves_end_where_the_shortest_seed_does(drawings: Drawings) -> None:
    """Trailing means 0, 0.5, 1 of seed 0, and 10 and 20 more of the others, which go on."""
    one, eight = panels(drawings["training_return"])
    assert line(one, "ppo") == ([0, 1, 2], [10, 10.5, 11])
    assert line(eight, "trpo") == ([0, 1, 2], [5, 5.5, 6])


def test_throughput_by_hand(drawings: Drawings) -> None:
    (axes,) = panels(drawings["throughput"])
    assert line(axes, "ppo") == ([1, 8], [50, 250])
    assert line(axes, "trpo") == ([1, 8], [40, 100])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    (ideal,) = (each for each in axes.lines if each.get_linestyle() == ":")
    assert list(np.asarray(ideal.get_ydata())) == [40, 320]


def test_phases_add_up_to_the_update(drawings: Drawings) -> None:
    """20 s per 1000 steps are 20,000 us: half, a quarter, an eighth, and the rest."""
    (axes,) = panels(drawings["phases"])
    assert bars(axes)[::4] == pytest.approx([10_000, 5_000, 2_500, 2_500])
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:2] == ["PPO, 1 environment, cpu", "PPO, 8 environments, cpu"]


def test_wall_clock_by_hand(drawings: Drawings) -> None:
    (axes,) = panels(drawings["wall_clock"])
    assert bars(axes) == [70, 70, 70, 65]
    assert [len(np.asarray(dots.get_xdata())) for dots in axes.lines] == [3, 3, 2, 2]


def test_diagnostics_by_hand(drawings: Drawings) -> None:
    """A quantity that an algorithm does not have has no line."""
    grid = np.array(panels(drawings[f"diagnostics-{ENVIRONMENT}"])).reshape(len(DIAGNOSTICS), 2)
    of = dict(zip(DIAGNOSTICS, grid[:, 0], strict=True))
    assert line(of["kl_nats"], "ppo", 1) == ([1000, 2000], [0.01, 0.02])
    assert line(of["entropy_nats"], "trpo", 1) == ([1000, 2000], [2, 1.5])
    assert line(of["clip_fraction"], "trpo", 1) == ([], [])
    assert line(of["line_search_success"], "trpo", 1) == ([1000, 2000], [1, 1])


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("evaluation_return", "environment steps", "evaluation return"),
        ("return_against_seconds", "training time (s)", "evaluation return"),
        ("training_return", "training episode", "training return"),
        ("throughput", "num_envs", "training steps/s"),
        ("phases", "microseconds per environment step", ""),
        ("wall_clock", "wall time of a learning run (s)", ""),
        (f"diagnostics-{ENVIRONMENT}", "environment steps", "(nats)"),
    ],
)
def test_axes_say_what_they_show(drawings: Drawings, name: str, x: str, y: str) -> None:
    """Along the left and the lower edge; the panels between share them."""
    for axes in panels(drawings[name]):
        place = axes.get_subplotspec()
        assert place is not None
        assert not place.is_last_row() or axes.get_xlabel() == x
        assert not place.is_first_col() or axes.get_ylabel() or not y
    assert y in panels(drawings[name])[0].get_ylabel()


def legend_of(drawing: Drawing) -> list[str]:
    return [text.get_text() for legend in drawing.figure.legends for text in legend.get_texts()]


def test_there_is_one_legend(drawings: Drawings) -> None:
    """The bars of wall time are labelled themselves."""
    assert all(axes.get_legend() is None for d in drawings.values() for axes in panels(d))
    found = {name: legend_of(drawing) for name, drawing in drawings.items()}
    assert found.pop("wall_clock") == []
    assert found.pop("phases") == ["environment", "policy", "update", "other"]
    assert all(names == ["PPO", "TRPO"] for names in found.values())


def test_captions_carry_n_and_alts_carry_numbers(drawings: Drawings) -> None:
    assert all("n = " in drawing.caption for drawing in drawings.values())
    alts = {name: drawing.alt for name, drawing in drawings.items()}
    first = f"PPO, {ENVIRONMENT}, 1 environment, cpu: "
    assert f"{first}200 after 2,000 steps" in alts["evaluation_return"]
    assert f"{first}200 after 40 s" in alts["return_against_seconds"]
    assert f"{first}trailing mean 11.5 at the end" in alts["training_return"]
    assert f"{first}50 steps/s" in alts["throughput"]
    assert f"{first}12% update, 50% environment" in alts["phases"]
    assert f"{first}70 s" in alts["wall_clock"]
    assert f"{first}mean KL 0.015, entropy from 2 to 1.5" in alts[f"diagnostics-{ENVIRONMENT}"]


def test_two_drawings_are_the_same_bytes(tmp_path: Path, drawings: Drawings) -> None:
    again = drawn(tmp_path, handmade(tmp_path))
    for name, drawing in drawings.items():
        first, second = (
            save_figure(each.figure, tmp_path / f"{i}.svg").read_bytes()
            for i, each in enumerate((drawing, again[name]))
        )
        assert first == second, name


def test_a_drawing_is_three_files_and_its_words(tmp_path: Path, drawings: Drawings) -> None:
    chosen = drawings["phases"]
    first, second = (save_drawings([chosen], tmp_path / name) for name in ("a", "b"))
    names = ["phases.svg", "phases.png", "phases.pdf", "figures.json"]
    assert [path.name for path in first] == names
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    (words,) = read_words(tmp_path / "a")
    assert words["caption"] == chosen.caption
    assert words["alt"] == chosen.alt


def nothing(_: Path, __: Plan) -> None:
    pass


def one_seed(folder: Path, plan: Plan) -> None:
    write_learning(folder, plan, {key: curves[:1] for key, curves in RETURNS.items()})


def no_throughput(folder: Path, plan: Plan) -> None:
    write_learning(folder, plan, RETURNS)


def no_learning(folder: Path, plan: Plan) -> None:
    for arm in arms(plan.cells):
        write_timings(folder, plan, arm, [1.0, 2.0])


@pytest.mark.parametrize("fill", [nothing, one_seed, no_throughput, no_learning])
def test_unfinished_folders_can_be_drawn(
    tmp_path: Path, fill: Callable[[Path, Plan], None]
) -> None:
    """As in the partial report of a workflow that failed."""
    plan = plan_of(make_benchmark(thresholds={}))
    fill(tmp_path, plan)
    found = drawn(tmp_path, plan)
    assert list(found) == NAMES
    for drawing in found.values():
        assert drawing.alt
        save_figure(drawing.figure, tmp_path / f"{drawing.name}.svg")


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    plan = plan_of(make_benchmark())
    one_seed(tmp_path, plan)
    caption = drawn(tmp_path, plan)["evaluation_return"].caption
    assert "the only seed (n = 1), so there is no interval" in caption


def test_every_environment_is_within_its_axes(tmp_path: Path) -> None:
    """Three environments of very different speed share one axis; two devices have two styles."""
    names = ["Fast-v0", "Slow-v0", "module:Slower/Env-v0"]
    plan = plan_of(
        make_benchmark(environments=names, devices=["cpu", "cuda"], thresholds={"Fast-v0": 1.0})
    )
    for arm in arms(plan.cells):
        write_timings(tmp_path, plan, arm, [0.1 * 30 ** names.index(arm.environment)] * 2)
    found = drawn(tmp_path, plan)
    assert legend_of(found["throughput"]) == ["PPO", "TRPO", "cpu", "cuda"]
    for axes in panels(found["throughput"]):
        low, high = axes.get_ylim()
        shown = [each for each in axes.lines if each.get_linestyle() in {"-", "--"}]
        points = np.concatenate([np.asarray(each.get_ydata()) for each in shown])
        assert len(points) == 2 * 2 * 2
        assert ((low < points) & (points < high)).all()
    assert [axes.get_title() for axes in panels(found["phases"])] == names
    assert all(len(bars(axes)) == 4 * 8 for axes in panels(found["phases"]))
    assert "diagnostics-module+3ASlower+2FEnv-v0" in found


def test_a_comparison_by_hand() -> None:
    """Raw and smoothed on the left, smoothed alone on the right, one legend."""
    figure = draw_comparison({"ppo": [0.0, 2.0, 4.0], "trpo": [1.0]}, "E-v0")
    left, right = figure.axes
    assert [list(np.asarray(each.get_ydata())) for each in left.lines] == [
        [0, 2, 4], [0, 1, 2], [1], [1],
    ]  # fmt: skip
    assert [list(np.asarray(each.get_ydata())) for each in right.lines] == [[0, 1, 2], [1]]
    assert all(axes.get_xlabel() == "training episode" for axes in (left, right))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["PPO", "TRPO"]


def test_no_display_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not show_figure(tmp_path / "nothing.png")
