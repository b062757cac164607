"""The report of two runs in a real browser: `make test-browser`. Skips, saying why, where there is no Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from observe_samples import HOSTILE, bundle, decode, groups_of, make_run

from megatron_seirenes.observe.bundle_index import encode_bundle, write_bundles
from megatron_seirenes.observe.records import rollout_records
from megatron_seirenes.observe.report import write_report

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path (chromium, chromium-browser, google-chrome)"),
]

LATEX = (
    r"So $\frac{1}{2}$, \(x^2\) and \[\int_0^1 x\,dx\] but \(\frac{1}{\) is broken. "
    r"\(\href{javascript:window.broken=4}{x}\) \(\includegraphics{file:///etc/passwd}\) "
    r"\(\def\a{\b\b}\def\b{\c\c}\def\c{\d\d}\def\d{\a\a}\a\) costs $5 and $6, hence \boxed{\frac{7}{1}}"
)
REAL = [Path(__file__).parents[2] / "runs" / "quickstart" / name for name in ("seirenes", "grpo")]
SCREENS = {"light": ("light", 1280), "dark": ("dark", 1280), "phone": ("light", 390)}


@dataclass
class Visit:
    """A page with everything that it complained about or asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def count(self) -> str:
        return self.page.locator("#bundle-count").inner_text()

    def tab_to(self, name: str, key: str = "Tab") -> None:
        for _ in range(40):
            if self.page.evaluate("document.activeElement.id") == name:
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"the tab key does not reach #{name}")

    def draw_all(self) -> None:
        """Scrolls through the page and waits until every figure has been drawn."""
        for plot in self.page.locator("[data-figure]").all():
            plot.scroll_into_view_if_needed()
        self.page.wait_for_function("document.querySelectorAll('.plot:not([data-drawn])').length === 0")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = [make_run(folder / "first"), make_run(folder / "<i>second", steps=30, gain=0.2, lr=2e-6)]
    latex = bundle("p/latex", (True, False), {LATEX: (False, True)}, step=20, question=LATEX, answer_text=LATEX)
    write_bundles(made[0], 20, [encode_bundle(rollout_records(latex, groups_of(latex), decode))])
    return made


@pytest.fixture(scope="module")
def report(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(runs, tmp_path_factory.mktemp("out") / "both.html")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def visit(chromium: Any, report: Path, screen: str = "light") -> Visit:
    scheme, width = SCREENS[screen]
    page = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}).new_page()
    page.set_default_timeout(120_000)  # a busy machine is slow, not wrong
    seen = Visit(page)
    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(report.as_uri())
    return seen


@pytest.mark.parametrize("screen", SCREENS)
def test_every_panel_is_drawn_in_silence(chromium: Any, report: Path, screen: str) -> None:
    seen = visit(chromium, report, screen)
    seen.draw_all()
    assert seen.page.locator(".plot .main-svg").count() >= 28
    assert seen.page.locator(".plot path.js-line, .plot .bars path").count() > 100
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith(("data:", "blob:"))] == [report.as_uri()]
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen][1]


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing(chromium: Any, report: Path, screen: str) -> None:
    seen = visit(chromium, report, screen)
    seen.draw_all()
    found = axe.Axe().run(seen.page).response["violations"]
    assert {rule["id"]: [node["html"] for node in rule["nodes"]][:3] for rule in found} == {}


def test_a_real_comparison_is_drawn_and_faultless(chromium: Any, tmp_path: Path) -> None:
    missing = [str(folder) for folder in REAL if not (folder / "metrics.jsonl").is_file()]
    if missing:
        pytest.skip(f"`make quickstart` has not been run here: no metrics.jsonl in {', '.join(missing)}")
    report = write_report(REAL, tmp_path / "real.html")
    for screen, (_, width) in SCREENS.items():
        seen = visit(chromium, report, screen)
        seen.draw_all()
        assert seen.page.locator("#bundle .columns").count() == 1
        assert (seen.complaints, seen.requests) == ([], [report.as_uri()])
        assert [rule["id"] for rule in axe.Axe().run(seen.page).response["violations"]] == []
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width


def test_filters_and_bundles_by_keyboard_alone(chromium: Any, report: Path) -> None:
    seen = visit(chromium, report)
    page, keys = seen.page, seen.page.keyboard
    while page.evaluate("document.activeElement.textContent") != "Bundles":
        keys.press("Tab")
    keys.press("Enter")
    assert seen.count() == "7 of 7 bundles"
    for name, typed, left in (
        ("bundle-question", "latex", "1 of 7 bundles"),
        ("bundle-from", "21", "3 of 7 bundles"),
        ("bundle-to", "5", "3 of 7 bundles"),
        ("bundle-least", "0.6", "0 of 7 bundles"),
        ("bundle-most", "0.5", "7 of 7 bundles"),
    ):
        seen.tab_to(name)
        keys.type(typed)
        assert seen.count() == left, name
        keys.press("Control+a")
        keys.press("Delete")
        assert seen.count() == "7 of 7 bundles"
    seen.tab_to("bundle-verdict", "Shift+Tab")
    keys.type("a hint m")
    assert page.evaluate("document.activeElement.value") == "misled"
    assert seen.count() == "4 of 7 bundles"
    while page.evaluate("document.activeElement.dataset.bundle ?? null") is None:
        keys.press("Tab")
    keys.press("ArrowDown")
    keys.press("Enter")
    page.wait_for_function("document.activeElement.id === 'bundle-title'")
    assert page.evaluate("document.activeElement.textContent") == "Step 1, question p/2"
    keys.press("Escape")
    assert page.evaluate("document.activeElement.dataset.bundle") == "1"
    seen.tab_to("bundle-reset", "Shift+Tab")
    keys.press("Enter")
    assert seen.count() == "7 of 7 bundles"


def test_answers_hint_and_answers_under_it_stand_side_by_side(chromium: Any, report: Path) -> None:
    page = visit(chromium, report).page
    page.locator("[data-bundle='0']").click()
    columns = page.locator("#bundle .columns > *")
    tops = {columns.nth(index).bounding_box()["y"] for index in range(3)}
    assert columns.count() == 3 and len(tops) == 1
    words = page.locator("#bundle .columns").inner_text()
    assert "plain: 2 of 2 correct, 1 to 2 tokens" in words
    assert "correct; answered 7; advantage +1.000; reward +1.000; 1 tokens" in words
    assert "wrong; answered 7; advantage –; reward –; 4 tokens, cut by the limit" in words
    page.get_by_role("button", name="Hint 2: not judged").click()
    assert page.locator("#bundle h4").nth(2).inner_text() == "Answers under hint 2"
    page.get_by_role("button", name="Answer 2 under hint 2: wrong").click()
    assert page.locator("[aria-label='Answer 2 under hint 2']").count() == 1


def test_what_a_model_wrote_does_nothing(chromium: Any, report: Path) -> None:
    seen = visit(chromium, report)
    page = seen.page
    shown = ""
    for number in range(7):
        page.locator(f"[data-bundle='{number}']").click()
        for choice in page.locator("#bundle .choice").all():
            for button in choice.locator("button").all():
                button.click()
                shown += page.locator("#bundle").inner_text()
    page.locator("#bundle-run").select_option("1")
    page.locator("#bundle-packed").check()
    assert page.locator("#bundle script, #bundle img, #bundle iframe, #bundle a, #bundle i").count() == 0
    assert page.evaluate("window.broken") is None
    assert all(hint.split(" ")[0] in shown for hint in HOSTILE)
    assert seen.complaints == []
    assert len(seen.requests) == 1


def test_mathematics_is_set_and_broken_latex_stays_as_written(chromium: Any, report: Path) -> None:
    page = visit(chromium, report).page
    page.locator("[data-bundle='3']").click()
    question = page.locator("#bundle [aria-label='Question']")
    assert question.locator("mfrac").count() == 2
    assert question.locator("math[display=block]").count() == 1
    assert r"\(\frac{1}{\)" in question.inner_text()
    assert "costs $5 and $6" in question.inner_text()
    page.locator("#bundle-source").check()
    assert question.inner_text() == LATEX
    assert page.locator("#bundle math").count() == 0


def test_the_rest_is_read_from_the_opened_folder(chromium: Any, runs: list[Path], tmp_path: Path) -> None:
    seen = visit(chromium, write_report(runs, tmp_path / "bare.html", bundles=0))
    page = seen.page
    page.locator("[data-bundle='2']").click()
    assert "are in first/rollouts/step-000001.jsonl.gz. Open that folder" in page.locator("#bundle").inner_text()
    page.locator("#bundle-folder").set_input_files(runs[0] / "rollouts")
    page.wait_for_selector("#bundle .columns")
    answer = page.locator("#bundle [aria-label='Clean answer 2']").inner_text()
    assert answer.count("long ") >= 2999, "texts are whole"
    page.locator("[data-bundle='3']").click()
    page.wait_for_selector("#bundle math")
    page.locator("#bundle-folder").set_input_files(runs[1] / "rollouts")
    assert len(seen.requests) == 1
    assert seen.complaints == []


def test_a_folder_of_another_run_is_refused(chromium: Any, runs: list[Path], tmp_path: Path) -> None:
    other = make_run(tmp_path / "other")
    one = bundle("q/9", (True,), {"h": (False,)}, step=20)
    write_bundles(other, 20, [encode_bundle(rollout_records(one, groups_of(one), decode))])
    page = visit(chromium, write_report(runs, tmp_path / "bare.html", bundles=0)).page
    page.locator("#bundle-folder").set_input_files(other / "rollouts")
    page.locator("[data-bundle='3']").click()
    page.wait_for_selector("#bundle .note")
    assert "step-000020.jsonl.gz could not be read" in page.locator("#bundle .note").inner_text()
