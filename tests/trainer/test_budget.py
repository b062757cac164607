import pytest
from toy_run import toy_config, toy_trainer

from megatron_seirenes.config.schema import Budget, RunSection
from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.trainer.budget import Spent, reason_to_end


def run(**budget) -> RunSection:
    return RunSection(collection_steps=10, budget=Budget(**budget))


def test_each_limit_ends_the_run_and_says_which():
    assert reason_to_end(run(), 9, Spent()) is None
    assert "collection steps" in reason_to_end(run(), 10, Spent())
    assert "hours" in reason_to_end(run(hours=1.0), 1, Spent(seconds=3600))
    assert "tokens" in reason_to_end(run(generated_tokens=5), 1, Spent(generated_tokens=5))
    assert "updates" in reason_to_end(run(updates=2), 1, Spent(updates=2))
    assert reason_to_end(run(hours=1.0, generated_tokens=5, updates=2), 1, Spent(3599, 4, 1)) is None


def test_counters_survive_a_snapshot():
    spent = Spent(1.5, 20, 3)
    assert Spent.from_state(spent.state_dict()) == spent


@pytest.mark.parametrize(("limit", "spent"), [("generated_tokens", 700), ("updates", 4)])
def test_a_run_ends_with_the_step_that_reaches_its_budget(tmp_path, limit, spent):
    trainer = toy_trainer(toy_config(tmp_path, collection_steps=50, budget={limit: spent}))
    with trainer.watch:
        assert limit.split("_")[-1] in trainer.run()
    key = {"generated_tokens": "tokens/generated", "updates": "policy_version"}[limit]
    rows = [row[key] for row in read_metrics(trainer.directory.metrics)]
    used = rows if limit == "updates" else [sum(rows[: i + 1]) for i in range(len(rows))]
    assert used[-2] < spent <= used[-1] == getattr(trainer.spent, limit)


def test_a_run_ends_with_the_step_that_takes_too_long(tmp_path):
    trainer = toy_trainer(toy_config(tmp_path, collection_steps=50, budget={"hours": 1e-9}))
    with trainer.watch:
        assert "hours" in trainer.run()
    assert trainer.cursor.step == 1
