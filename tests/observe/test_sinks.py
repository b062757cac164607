import builtins
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from observe_samples import metrics_row

from megatron_seirenes.errors import MissingComponentError
from megatron_seirenes.observe.tensorboard import TensorBoardSink, WandbSink, shown


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_holds_the_numbers_of_the_rows(tmp_path: Path) -> None:
    rows = [metrics_row(step) for step in (1, 2, 3)]
    sink = TensorBoardSink(tmp_path)
    for row in rows:
        sink.write(row)
    sink.close()
    found = scalars(tmp_path)
    assert set(found) == set(shown(rows[0]))
    for key, points in found.items():
        assert points == [(row["step"], pytest.approx(row[key], rel=1e-6)) for row in rows]


def test_a_resumed_run_hides_the_steps_it_runs_again(tmp_path: Path) -> None:
    for first, steps in ((None, (1, 2, 3)), (3, (3, 4))):
        sink = TensorBoardSink(tmp_path, first)
        for step in steps:
            sink.write({"step": step, "success/clean": step / 10 + (first or 0)})
        sink.close()
    steps = [step for step, _ in scalars(tmp_path)["success/clean"]]
    assert steps == [1, 2, 3, 4]


def test_null_and_what_is_not_finite_are_left_out() -> None:
    row = {"step": 1, "a": None, "b": float("nan"), "c": float("-inf"), "d": 0}
    assert shown(row) == {"d": 0}


def test_wandb_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingComponentError, match=r"observe\.wandb is true.*pip install wandb"):
        WandbSink("run", {}, tmp_path)


def test_tensorboard_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "torch.utils.tensorboard":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingComponentError, match=r"observe\.tensorboard is true"):
        TensorBoardSink(tmp_path)


def test_wandb_is_given_the_same_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[Any] = []
    run = types.SimpleNamespace(
        log=lambda values, step: calls.append((step, values)), finish=lambda: calls.append("finish")
    )
    module = types.ModuleType("wandb")
    module.init = lambda **options: calls.append(options) or run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    sink = WandbSink("seirenes", {"run": {"seed": 0}}, tmp_path)
    sink.write({"step": 4, "success/clean": 0.5, "loss/clean": None})
    sink.close()
    assert calls[0]["id"] == "seirenes"
    assert calls[0]["resume"] == "allow"
    assert calls[0]["config"] == {"run": {"seed": 0}}
    assert calls[1:] == [(4, {"success/clean": 0.5}), "finish"]
