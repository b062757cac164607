import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from observe_samples import HOSTILE, make_run, metrics_row

from megatron_seirenes.errors import DataError, UsageError
from megatron_seirenes.observe.report import write_report
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
        if tag not in ("meta", "img"):
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
    assert anchors == {"overview", *(chapter.anchor for chapter in CHAPTERS), "samples", "configuration"}
    titles = {panel.title for chapter in CHAPTERS for panel in chapter.panels} - {"KL to the reference"}
    missing = {title for title in titles if title not in one.text}
    assert missing == set()
    assert "KL to the reference" not in one.text, "a panel without data is left out"


def test_each_plot_has_its_figure_and_words(one: Page) -> None:
    numbers = [int(number) for number in one.attributes("data-figure")]
    assert numbers == list(range(len(one.figures)))
    plots = [attributes for tag, attributes in one.elements if attributes.get("class") == "plot"]
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in plots)
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


def test_a_torn_last_line_is_left_out(one: Page) -> None:
    assert "999" not in one.text


def test_nothing_a_model_wrote_becomes_markup(one: Page, both: Page) -> None:
    for page in (one, both):
        tags = [tag for tag, _ in page.elements]
        assert tags.count("script") == 3
        assert "img" not in tags
        assert "i" not in tags
        names = {name for _, attributes in page.elements for name in attributes}
        assert not {name for name in names if name.startswith("on")}
        for hint in HOSTILE:
            assert hint in page.text, "a hint is shown as it was written"
    assert not any("window.broken" in script for script in (*one.scripts, *both.scripts))


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


def test_samples_show_what_became_of_each_answer(one: Page) -> None:
    for words in (
        "Step 40, question p/1",
        "correct, answered 7; 2 of 2 correct; advantage +1.000; 1 tokens",
        "wrong, answered 7; 0 of 2 correct; advantage –; 4 tokens, cut by the limit",
        "refused: not about the question",
        "characters left out",
    ):
        assert words in one.text
    first, second = one.text.index("question p/1"), one.text.index("question p/3")
    assert first < second, "the question that was misled most stands first"


def test_the_same_runs_give_the_same_page(runs: list[Path], tmp_path: Path) -> None:
    first, second = (write_report(runs, tmp_path / name) for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()


def test_a_run_with_one_bare_step_can_be_reported(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "metrics.jsonl") as writer:
        writer.append({"step": 1, "success/clean": 0.5, "success/hinted": None, "time/step": 2.0})
    page = Page(write_report([tmp_path]))
    assert "Success, clean and hinted" in page.text
    assert "Samples" not in page.text
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
