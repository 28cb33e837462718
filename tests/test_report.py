"""The page, read back by an HTML parser."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from results_folder import (
    DIGEST,
    ENVIRONMENT,
    RETURNS,
    handmade_tables,
    make_benchmark,
    plan_of,
    write_learning,
    write_run,
)
from rlbench.analysis.aggregate import Tables, gather
from rlbench.analysis.drawing import Drawing, save_drawings
from rlbench.analysis.figures import draw_all, wall_clock
from rlbench.analysis.report import write_report
from rlbench.errors import InputError, RlbenchError
from rlbench.spec.config import Benchmark
from rlbench.spec.grid import Cell, slug
from rlbench.spec.plan import Plan

VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """The elements of a page, and the text inside each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        self.texts.append((tag, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.texts:
            tag, text = self.texts[-1]
            self.texts[-1] = (tag, text + data)

    def of(self, tag: str) -> Iterator[dict[str, str]]:
        return (attributes for name, attributes in self.elements if name == tag)

    def inside(self, tag: str) -> list[str]:
        return [text.strip() for name, text in self.texts if name == tag]


class Written:
    """A results folder with its figures and its page."""

    def __init__(self, folder: Path, made: tuple[Tables, Plan], drawings: list[Drawing]) -> None:
        self.folder, self.drawings, (self.tables, self.plan) = folder, drawings, made
        save_drawings(drawings, folder / "figures")
        write_report(self.plan, self.tables, folder, folder / "report.html")
        self.text = (folder / "report.html").read_text(encoding="utf-8")
        self.page = Page(self.text)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("results")
    made = handmade_tables(folder)
    return Written(folder, made, draw_all(*made))


def test_two_renderings_are_the_same_bytes(written: Written, tmp_path: Path) -> None:
    write_report(written.plan, written.tables, written.folder, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == written.text


def test_elements_are_closed_and_identifiers_unique(written: Written) -> None:
    assert written.page.open == []
    found = [a["id"] for _, a in written.page.elements if "id" in a]
    assert len(found) == len(set(found))


def test_the_page_needs_no_network(written: Written) -> None:
    """Nothing to load but data; links lead into the page or the folder."""
    tags = {tag for tag, _ in written.page.elements}
    assert not tags & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for _, attributes in written.page.elements:
        assert attributes.get("src", "data:").startswith("data:image/svg+xml;base64,") or (
            "src" not in attributes
        )
        assert attributes.get("href", "#").startswith(("#", "figures/"))
        assert not any(name.startswith("on") for name in attributes)
    style = "".join(written.page.inside("style"))
    assert not re.search(r"@import|url\(", style)


def test_links_lead_somewhere(written: Written) -> None:
    here = {a["id"] for _, a in written.page.elements if "id" in a}
    links = [a["href"] for a in written.page.of("a")]
    assert sum(link.startswith("figures/") for link in links) == 3 * len(written.drawings)
    for link in links:
        known = link[1:] in here if link[0] == "#" else (written.folder / unquote(link)).is_file()
        assert known, link


def test_what_a_run_said_is_text_not_markup(written: Written) -> None:
    assert "<script" not in written.text.lower()
    assert "<script>alert(1)</script> & co | env 0 ended" in written.page.inside("td")


def test_every_figure_has_a_picture_an_alt_and_a_caption(written: Written) -> None:
    images, captions = list(written.page.of("img")), written.page.inside("figcaption")
    shown = [a["id"] for a in written.page.of("figure")]
    assert sorted(shown) == sorted(drawing.name for drawing in written.drawings)
    assert len(images) == len(captions) == len(shown)
    alts = {drawing.name: drawing.alt for drawing in written.drawings}
    for name, image, caption in zip(shown, images, captions, strict=True):
        assert image["alt"].endswith(alts[name])
        assert "n = " in caption


def rows_of(page: Page, label: str) -> list[list[str]]:
    """The cells of the table in the region with this label, row by row."""
    start = next(i for i, (_, a) in enumerate(page.elements) if a.get("aria-label") == label)
    rows: list[list[str]] = []
    for tag, text in page.texts[start + 1 :]:
        if tag == "tr":
            rows.append([])
        elif tag in {"th", "td"}:
            rows[-1].append(text.strip())
        elif tag not in {"table", "thead", "tbody"}:
            break
    return rows


def test_the_headline_by_hand(written: Written) -> None:
    assert rows_of(written.page, "Headline table") == [
        ["algorithm", "environment", "num envs", "device", "final return, IQM [95 %]", "threshold",
         "median steps to it", "seconds to it", "seeds there", "steps/s", "n"],
        ["ppo", ENVIRONMENT, "1", "cpu", "200 [100, 300]", "150", "2,000", "40", "2 of 3", "50",
         "3 of 3"],
        ["ppo", ENVIRONMENT, "8", "cpu", "410 [400, 420]", "150", "1,000", "4", "3 of 3", "250",
         "3 of 3"],
        ["trpo", ENVIRONMENT, "1", "cpu", "200 [90, 310]", "150", "", "", "1 of 2", "40", "2 of 3"],
        ["trpo", ENVIRONMENT, "8", "cpu", "210 [200, 220]", "150", "2,000", "20", "2 of 2", "100",
         "2 of 3"],
    ]  # fmt: skip


def test_every_cell_is_on_the_page(written: Written) -> None:
    header, *rows = rows_of(written.page, "Every cell")
    assert len(rows) == 12
    assert sum(row[header.index("status")] == "ok" for row in rows) == 10
    _, failed, missing = rows_of(written.page, "Cells without a result")
    assert failed[:6] == ["trpo", ENVIRONMENT, "1", "cpu", "1", "failed"]
    assert missing[4:] == ["2", "missing", "not run, or stopped before its end"]


def test_the_page_opens_with_what_a_reader_must_know(written: Written) -> None:
    summary, items = written.page.inside("p")[0], written.page.inside("li")
    assert summary == (
        "2026-01-01 · commit 0123456789 · Abacus <3> (2 cores), no GPU · 10 of 12 cells · 3 seeds"
        " · 2,000 steps each"
    )
    assert "2 of 12 cells have no result (1 failed, 1 missing): see below." in items
    assert any(item.startswith("Only 2 seeds in some arms") for item in items)
    assert any("the data do not decide between them" in item for item in items)


def test_the_configuration_comes_back(written: Written) -> None:
    (text,) = (text for text in written.page.inside("pre") if "eval_every_steps:" in text)
    assert Benchmark.model_validate(yaml.safe_load(text)) == written.plan.benchmark


def test_without_threshold_or_throughput_the_headline_is_empty_there(tmp_path: Path) -> None:
    """And an environment with a slash has a working link and a command that finds its cell."""
    name = "ale_py:ALE/Pong-v5"
    plan = plan_of(make_benchmark(environments=[name], thresholds={}))
    plan = plan.model_copy(update={"config": "my config.yaml"})
    write_learning(tmp_path, plan, RETURNS)
    made = gather(plan, tmp_path), plan
    (drawing,) = wall_clock(*made)
    written = Written(tmp_path, made, [replace(drawing, name=f"diagnostics-{slug(name)}")])
    first = rows_of(written.page, "Headline table")[1]
    assert first[4:] == ["200 [100, 300]", "", "", "", "", "", "3 of 3"]
    test_links_lead_somewhere(written)
    (command,) = (text for text in written.page.inside("pre") if "show-job" in text)
    inner = shlex.split(command.partition("$(")[2].rpartition(")")[0])
    assert inner[:3] == ["rlbench", "show-job", "my config.yaml"]
    assert Cell.from_path(inner[3]) in plan.cells


def test_mixed_code_is_refused_unless_allowed(tmp_path: Path) -> None:
    _, plan = handmade_tables(tmp_path)
    write_run(tmp_path, plan, Cell("ppo", ENVIRONMENT, 1, "cpu", 0), (0, 1), digest="bbbbbbbbbbbb")
    tables, path = gather(plan, tmp_path), tmp_path / "report.html"
    save_drawings([], tmp_path / "figures")
    with pytest.raises(
        RlbenchError, match=rf"{DIGEST} \(13 runs\), bbbbbbbbbbbb \(1 runs\).*--allow-mixed"
    ) as got:
        write_report(plan, tables, tmp_path, path)
    assert got.value.exit_code == 1
    assert not path.exists()
    write_report(plan, tables, tmp_path, path, allow_mixed=True)
    items = Page(path.read_text(encoding="utf-8")).inside("li")
    assert any("bbbbbbbbbbbb (1 runs)" in item for item in items)


def test_no_page_without_figures_or_without_runs(tmp_path: Path) -> None:
    tables, plan = handmade_tables(tmp_path)
    path = tmp_path / "report.html"
    with pytest.raises(InputError, match=r"`rlbench figures .*` makes it"):
        write_report(plan, tables, tmp_path, path)
    with pytest.raises(InputError, match="no finished run among 12 cells"):
        write_report(plan, gather(plan, tmp_path / "empty"), tmp_path, path)
    assert not path.exists()
