from megatron_seirenes.config.schema import Budget, RunSection
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
