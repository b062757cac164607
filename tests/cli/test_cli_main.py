"""The command line as a user meets it: messages, exit codes, help; through the console entry where that matters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from megatron_seirenes import __version__
from megatron_seirenes.cli import main as entry
from megatron_seirenes.errors import (
    ConfigError,
    DataError,
    MissingComponentError,
    SeirenesError,
    StoppedBySignal,
    UsageError,
)

BASE = Path(__file__).resolve().parents[2] / "yaml_configs" / "base.yaml"
CONSOLE = Path(sys.executable).parent / "seirenes"

FIVE_FAULTS = """
parallel: {tensro: 2, expert: 3}
optimizer: {lr: "1e-6"}
streams: {clean: {flush: 64, capacity: 63}}
game: {stages: {R1: {max_tokens: 30_000}}}
model:
  new:
    {family: qwen3_moe, tokenizer: t, layers: 2, hidden: 64, ffn_size: 64, heads: 4, kv_heads: 2, head_dim: 32,
     max_positions: 32_768, experts: 8, experts_per_token: 2, expert_ffn_size: 32}
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command run in this process."""
    try:
        entry.main(arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes `seirenes report` raise; it stands for any command."""

    def app(*arguments: object, **keywords: object) -> None:
        raise error

    monkeypatch.setattr(entry, "app", app)


def test_five_faults_make_one_message_of_five_lines(tmp_path: Path) -> None:
    path = tmp_path / "five.yaml"
    path.write_text(FIVE_FAULTS)
    ended = subprocess.run([CONSOLE, "config", path], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stdout == ""
    title, *lines = ended.stderr.splitlines()
    assert title == f"{path}: 5 faults"
    assert [line.split(" (")[0].strip() for line in lines] == [
        "parallel.tensro",
        "optimizer.lr",
        "streams.clean.capacity",
        "game.stages.R1.max_tokens",
        "parallel.expert",
    ]
    assert "did you mean tensor?" in lines[0]
    assert "longer than the model's context of 32768" in lines[3]


def test_the_module_is_the_same_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "megatron_seirenes", "config", BASE, "run.seed=11"], capture_output=True, text=True
    )
    assert ended.returncode == 0
    assert yaml.safe_load(ended.stdout)["run"]["seed"] == 11


def test_help_answers_at_once_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, time\nfrom megatron_seirenes.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    print(*sys.modules, time.process_time())"
    )
    *shown, seconds = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert {"torch", "vllm", "megatron", "transformers", "pydantic"}.isdisjoint(shown)
    assert float(seconds) < 1


def test_a_report_on_nothing_leaves_nothing_behind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "report", str(tmp_path / "gone"))
    assert code == 2 and "no metrics.jsonl" in err
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"seirenes {__version__}\n", "")


@pytest.mark.parametrize("command", [module.__name__.rpartition(".")[2] for module in entry.COMMANDS])
def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert "Example: " in out
    assert f" {command} " in " ".join(out.partition("Example: ")[2].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["trian"],
        ["config"],
        ["config", "gone.yaml"],
        ["train", str(BASE), "--resmue", "never"],
        ["judge", "--gold", "1"],
        ["judge", "--file", "gone.jsonl"],
    ],
)
def test_wrong_calls_exit_2_and_say_why(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.strip()
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SeirenesError("it failed"), 1),
        (UsageError("bad call"), 2),
        (DataError("bad row"), 2),
        (MissingComponentError("no engine"), 3),
        (StoppedBySignal("stopped, all saved"), 75),
    ],
)
def test_errors_become_their_message_and_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: SeirenesError, code: int
) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    fail_with(monkeypatch, error)
    assert run(capsys, "x") == (code, "", f"{error}\n")


def test_a_saved_stop_is_no_failure_to_torchrun(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    fail_with(monkeypatch, StoppedBySignal("saved"))
    assert run(capsys, "x")[0] == 0
    fail_with(monkeypatch, SeirenesError("broken"))
    assert run(capsys, "x")[0] == 1


def test_a_launch_prints_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert run(capsys, "config", str(BASE))[:2] == (0, "")
    fail_with(monkeypatch, ConfigError("c.yaml", ["a: wrong"]))
    assert run(capsys, "x") == (2, "", "")
    fail_with(monkeypatch, DataError("no file here"))
    assert run(capsys, "x") == (2, "", "rank 3: no file here\n")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, ZeroDivisionError("bug"))
    with pytest.raises(ZeroDivisionError):
        entry.main(["x"])


def test_an_interrupt_ends_with_130_and_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("megatron_seirenes.config.loading.load_config", interrupt)
    code, out, err = run(capsys, "config", str(BASE))
    assert (code, out, err) == (130, "", "interrupted\n")


def test_train_hands_on_the_configuration_and_how_to_resume(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    train = SimpleNamespace(train=lambda config, resume, accept: calls.append((config.run.seed, resume, accept)))
    monkeypatch.setitem(sys.modules, "megatron_seirenes.trainer.train", train)
    assert run(capsys, "train", str(BASE), "run.seed=4")[0] == 0
    assert run(capsys, "train", str(BASE), "--resume", "never", "run.seed=-4")[0] == 2
    assert run(capsys, "train", "--resume", "runs/a/snapshots/step-000010", str(BASE))[0] == 0
    assert run(capsys, "train", str(BASE), "--accept", "model", "--accept", "game")[0] == 0
    assert calls == [
        (4, "auto", ()),
        (0, "runs/a/snapshots/step-000010", ()),
        (0, "auto", ["model", "game"]),
    ]


def test_judge_prints_one_object_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [("1/2", r"so \boxed{0.5}"), ("3", r"\boxed{4}"), ("3", "3")]
    pairs.write_text("".join(json.dumps({"gold": gold, "answer": answer}) + "\n\n" for gold, answer in rows))
    code, out, _ = run(capsys, "judge", "--file", str(pairs))
    verdicts = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [verdict["reason"] for verdict in verdicts] == ["match", "mismatch", "no_answer"]
    assert [verdict["correct"] for verdict in verdicts] == [True, False, False]
    assert set(verdicts[0]) == {"correct", "extracted", "reason", "seconds"}


def test_judge_takes_options_as_a_configuration_does(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("judge", "verifier.extraction=choice", "--gold", "B", "--answer", "The answer is (B).")
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and json.loads(out)["correct"]
    code, _, err = run(capsys, "judge", "verifier.extracton=choice", "--gold", "B", "--answer", "(B)")
    assert code == 2 and "extraction" in err


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "not JSON"), ("[1]", "gold and answer is expected"), ('{"gold": 3, "answer": "3"}', "gold and answer")],
)
def test_judge_names_the_row_it_cannot_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, said: str
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(f"\n{line}\n")
    code, _, err = run(capsys, "judge", "--file", str(pairs))
    assert code == 2
    assert f"{pairs}:2: " in err
    assert said in err
