import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observe_samples import HOSTILE, make_run, metrics_row

from megatron_seirenes.errors import DataError, UsageError
from megatron_seirenes.observe.bundle_index import BundleFacts, Entry
from megatron_seirenes.observe.report import write_report
from megatron_seirenes.observe.report.bundles import choose
from megatron_seirenes.observe.report.chapters import CHAPTERS
from megatron_seirenes.observe.report.page import json_for_script
from megatron_seirenes.observe.writer import MetricsWriter


class Page(HTMLParser):
    """What a browser makes of a page: its elements, the content of scripts, and the visible text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input"):
            self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif self._open and self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.words)

    @property
    def figures(self) -> list[dict]:
        return json.loads(self.scripts[0])

    @property
    def bundles(self) -> list[dict]:
        return json.loads(self.scripts[1])

    def attributes(self, name: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / "first"), make_run(folder / "<i>second", steps=30, gain=0.2, lr=2e-6)]


@pytest.fixture(scope="module")
def one(runs: list[Path]) -> Page:
    path = write_report(runs[:1])
    assert path == runs[0] / "report.html"
    return Page(path)


@pytest.fixture(scope="module")
def both(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(write_report(runs, tmp_path_factory.mktemp("out") / "deep" / "both.html"))


def test_every_section_and_panel_is_there(one: Page) -> None:
    anchors = {attributes["id"] for tag, attributes in one.elements if tag == "section" and "id" in attributes}
    assert anchors == {"overview", *(chapter.anchor for chapter in CHAPTERS), "bundles-of-runs", "configuration"}
    titles = {panel.title for chapter in CHAPTERS for panel in chapter.panels} - {"KL to the reference"}
    missing = {title for title in titles if title not in one.text}
    assert missing == set()
    assert "KL to the reference" not in one.text, "a panel without data is left out"


def test_each_plot_has_its_figure_and_words(one: Page) -> None:
    numbers = [int(number) for number in one.attributes("data-figure")]
    assert numbers == list(range(len(one.figures)))
    plots = [attributes for tag, attributes in one.elements if attributes.get("class") == "plot"]
    assert all(attributes["role"] == "group" and attributes["aria-label"] for attributes in plots)
    success = next(label for label in one.attributes("aria-label") if label.startswith("Success, clean and hinted"))
    assert "clean: 0.51 to 0.9 over 40 points" in success


def test_figures_hold_the_numbers_of_the_run(one: Page) -> None:
    clean, hinted = one.figures[0]["data"]
    assert clean["x"] == list(range(1, 41))
    assert clean["y"] == [metrics_row(step)["success/clean"] for step in range(1, 41)]
    assert hinted["y"] == [metrics_row(step)["success/hinted"] for step in range(1, 41)]
    tokens = next(figure for figure in one.figures if "tokens" in figure["layout"]["xaxis"]["title"]["text"])
    assert tokens["data"][0]["x"][1] == (10_001 + 10_002) / 1e6


def test_time_is_split_into_parts_that_do_not_overlap(one: Page) -> None:
    bars = next(figure for figure in one.figures if figure["data"][0]["type"] == "bar")
    hours = {bar["name"]: bar["x"][0] for bar in bars["data"]}
    each = {"rollout": 3.5, "judge_wait": 0.5, "train": 3.0, "sync": 0.1, "snapshot": 0.2, "other": 0.7}
    assert hours == {part: pytest.approx(seconds * 40 / 3600) for part, seconds in each.items()}


def test_the_timeline_s_figures_stand_in_a_table(one: Page) -> None:
    words = [word for word in one.words if word.strip()]
    row = words[words.index("judging alone") + 1 :][:9]
    added = ["2.00 s (25.0%)", "0.50 s (6.2%)", "0.50 s (6.2%)"]
    assert row == ["first", "3", "8.00", "62.5%", "62.5%", *added, "1.00 s (12.5%)"]


def test_a_torn_last_line_is_left_out(one: Page) -> None:
    assert "999" not in one.text


def test_nothing_a_model_wrote_becomes_markup(one: Page, both: Page) -> None:
    for page in (one, both):
        tags = [tag for tag, _ in page.elements]
        assert tags.count("script") == 7, "two of data, two libraries, three of the page's own"
        assert "img" not in tags
        assert "i" not in tags
        names = {name for _, attributes in page.elements for name in attributes}
        assert not {name for name in names if name.startswith("on")}
        packed = [bundle for run in page.bundles for bundle in run["packed"].values()]
        texts = {record["response"] for bundle in packed for record in bundle["records"]}
        assert texts >= set(HOSTILE), "a hint is kept as it was written"
        assert not any("<" in script for script in page.scripts[:2])


def test_the_policy_forbids_requests_and_foreign_scripts(one: Page) -> None:
    policy = next(attributes["content"] for tag, attributes in one.elements if attributes.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert not [value for name in ("src", "href") for value in one.attributes(name) if not value.startswith("#")]


def test_json_in_a_script_cannot_end_it() -> None:
    value = {"hint": [*HOSTILE, "]]>", "\u2029"]}
    written = json_for_script(value)
    assert not re.search(r"[<>&\u2028\u2029]", written)
    assert json.loads(written) == value


def test_several_runs_are_overlaid_and_compared(both: Page) -> None:
    names = [trace["name"] for trace in both.figures[0]["data"]]
    assert names == [
        "first: clean",
        "first: hinted",
        "&lt;i&gt;second: clean",
        "&lt;i&gt;second: hinted",
    ]
    colours = [trace["line"]["color"] for trace in both.figures[0]["data"]]
    assert colours[0] == colours[1] != colours[2] == colours[3]
    assert "Where the configurations differ" in both.text
    assert {"optimizer.lr", "1e-06", "2e-06"} <= {word.strip() for word in both.words}
    assert "Configuration of <i>second" in both.attributes("aria-label")


def test_every_bundle_is_listed_with_what_became_of_it(one: Page) -> None:
    (run,) = one.bundles
    assert run["steps"] == [1, 40]
    assert run["problems"] == ["p/1", "p/2", "p/3"]
    assert run["file"] == [0, 0, 0, 1, 1, 1]
    assert (run["correct"][1], run["judged"][1]) == (1, 2)
    assert run["hints"][1] == [[0.5, 0, 0, 1], [0.5, 0, 2, 0]]
    assert run["questions"][2] == HOSTILE[1]


def test_texts_of_the_chosen_bundles_are_packed_and_shortened(runs: list[Path], tmp_path: Path) -> None:
    (run,) = Page(write_report(runs[:1], tmp_path / "two.html", bundles=2)).bundles
    assert sorted(run["packed"]) == ["0", "3"], "of each step the question that was misled most"
    (run,) = Page(write_report(runs[:1], tmp_path / "all.html", bundles=50)).bundles
    assert len(run["packed"]) == 6
    long = run["packed"]["2"]["records"][0]
    assert "characters left out" in long["response"]
    assert long["response"].startswith(HOSTILE[0])
    assert long["characters"] > len(long["response"])
    (run,) = Page(write_report(runs[:1], tmp_path / "none.html", bundles=0)).bundles
    assert run["packed"] == {}


@given(sizes=st.lists(st.integers(1, 9), max_size=12), limit=st.integers(0, 30))
def test_the_chosen_are_spread_and_as_many_as_asked_for(sizes: list[int], limit: int) -> None:
    facts = BundleFacts("p", "?", 1, 1, None, ())
    entries = [(file, Entry(facts, 0, 0)) for file, size in enumerate(sizes) for _ in range(size)]
    chosen = choose(entries, limit)
    assert len(set(chosen)) == len(chosen) <= limit
    if sizes and limit >= 2:
        assert {entries[index][0] for index in chosen} >= {0, len(sizes) - 1}


def test_the_same_runs_give_the_same_page(runs: list[Path], tmp_path: Path) -> None:
    first, second = (write_report(runs, tmp_path / name) for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()


def test_a_run_with_one_bare_step_can_be_reported(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "metrics.jsonl") as writer:
        writer.append({"step": 1, "success/clean": 0.5, "success/hinted": None, "time/step": 2.0})
    page = Page(write_report([tmp_path]))
    assert "Success, clean and hinted" in page.text
    assert "bundles" not in [attributes.get("id") for _, attributes in page.elements]
    assert "Configuration" not in page.text


def test_what_cannot_be_reported_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one run directory"):
        write_report([])
    with pytest.raises(DataError, match=r"nowhere: no metrics\.jsonl"):
        write_report([tmp_path / "nowhere"], tmp_path / "x.html")
    MetricsWriter(tmp_path / "metrics.jsonl").close()
    with pytest.raises(DataError, match="no step has finished"):
        write_report([tmp_path])
    assert not (tmp_path / "report.html").exists()


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / parent / "seed0", steps=3) for parent in ("a", "b")]
    text = Page(write_report(folders)).text
    assert "a/seed0" in text
    assert "b/seed0" in text
