from collections import Counter

import pytest

from megatron_seirenes.config.schema import RoleSettings
from megatron_seirenes.problems.chain_statements import Claim, Restatement, StepValue, parse_statements
from megatron_seirenes.problems.chains import Chain, ChainStep, chain_problem, split_of
from megatron_seirenes.problems.supervised import read_records
from megatron_seirenes.quickstart.records import write_warmup_records
from megatron_seirenes.quickstart.tokenizer import VOCABULARY, make_tokenizer
from megatron_seirenes.roles.chat import ChatFormat
from megatron_seirenes.roles.role import Roles
from megatron_seirenes.roles.tokenizer import load_tokenizer

COUNTS = {"phase1_records": 1500, "short_records": 500, "phase2_records": 6000}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_warmup_records(tmp_path_factory.mktemp("records"), seed=0, **COUNTS)


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(folder)
    return ChatFormat(load_tokenizer(folder))


def split_turn(record) -> tuple[str, Chain, str | None]:
    """Role word, chain and hint of a record's user turn, read without the code that wrote it."""
    (message,) = record.messages
    assert message["role"] == "user"
    asked, _, told = message["content"].partition(" ?")
    word, start, *steps = asked.split()
    chain = Chain(int(start), tuple(map(ChainStep, steps[1::3], map(int, steps[2::3]))))
    assert told == "" or told.startswith(" hint ")
    return word, chain, told.removeprefix(" hint ") or None


def boxed_value(response: str) -> int:
    *_, box, value, close = response.split()
    assert (box, close) == ("\\boxed{", "}")
    return int(value)


def test_every_record_is_of_a_training_template(files):
    for path in (files.phase1, files.phase2):
        assert {split_of(split_turn(record)[1].template) for record in read_records(path)} == {"train"}


def test_phase_1_is_clean_faultless_work_with_short_chains_first(files):
    records = read_records(files.phase1)
    lengths = []
    for record in records:
        word, chain, hint = split_turn(record)
        lengths.append(len(chain.steps))
        assert (word, hint) == ("solve", None)
        worked = " ".join(f"{'abcdef'[index]} {value}" for index, value in enumerate(chain.values))
        assert record.response == f"{worked} \\boxed{{ {chain.answer} }}"
    assert len(records) == 1500
    assert set(lengths[:500]) == {1, 2, 3, 4}
    assert set(lengths[500:]) == {1, 2, 3, 4, 5, 6}


def test_phase_2_has_the_mixture_it_promises(files):
    records = read_records(files.phase2)
    kinds: Counter[str] = Counter()
    for record in records:
        word, chain, hint = split_turn(record)
        role = "adversary" if word == "mislead" else "clean" if hint is None else "hinted"
        kinds[role] += 1
        if role == "clean":
            direct = record.response.startswith("\\boxed{")
            kinds["clean direct"] += direct
            kinds["clean right"] += boxed_value(record.response) == chain.answer
            assert not direct or boxed_value(record.response) == chain.answer
            continue
        statements = parse_statements(hint or record.response, chain)
        kind = {Claim: "claim", StepValue: "steps", Restatement: "restatement"}[type(statements[0])]
        kinds[f"{role} {kind}"] += 1
        kinds[f"{role} true"] += all(statement.holds(chain) for statement in statements)
        if role == "hinted" and kind == "claim" and not statements[0].holds(chain):
            kinds["false claim"] += 1
            kinds["false claim followed"] += boxed_value(record.response) == statements[0].value

    def share(part: str, whole: str) -> float:
        return kinds[part] / kinds[whole]

    total = sum(kinds[role] for role in ("clean", "hinted", "adversary"))
    assert total == 6000
    assert kinds["clean"] / total == pytest.approx(0.35, abs=0.025)
    assert kinds["hinted"] / total == pytest.approx(0.45, abs=0.025)
    assert share("clean direct", "clean") == pytest.approx(0.15, abs=0.03)
    assert 0.65 < share("clean right", "clean") < 0.78  # 0.15 + 0.85 x the mean of 0.9^n, and lucky slips
    assert share("hinted true", "hinted") == pytest.approx(0.7, abs=0.03)
    assert share("adversary true", "adversary") == pytest.approx(0.7, abs=0.05)
    assert share("adversary steps", "adversary") == pytest.approx(0.6, abs=0.05)
    assert share("adversary restatement", "adversary") == pytest.approx(0.3, abs=0.05)
    assert share("adversary claim", "adversary") == pytest.approx(0.1, abs=0.04)
    assert share("hinted steps", "hinted") == pytest.approx(0.5, abs=0.04)
    assert 0.85 < share("false claim followed", "false claim") < 0.97  # 0.9, and own work that slips onto the claim


def test_whoever_believes_a_hint_copies_its_steps_and_goes_on_from_them(files):
    believed = told = 0
    for record in read_records(files.phase2):
        word, chain, hint = split_turn(record)
        if word == "mislead" or hint is None or hint.startswith("claim"):
            continue
        *work, _, value, _ = record.response.split()
        labels, values = work[::2], work[1::2]
        assert labels == list("abcdef")[: len(chain.steps)]
        assert values[-1] == value
        if len(hint.split()) % 2 == 0:
            told += 1
            believed += record.response.startswith(hint + " ")
    assert 0.88 < believed / told < 0.98


def test_warm_up_and_self_play_ask_with_the_same_tokens(files, chat):
    settings = {name: RoleSettings(prompt=f"chains_{name}") for name in ("reasoner", "adversary")}
    roles = Roles.build(settings, settings, chat)
    for record in read_records(files.phase2)[:300]:
        word, chain, hint = split_turn(record)
        role = roles["adversary" if word == "mislead" else "reasoner"]
        context = {} if hint is None else {"hint": hint}
        assert chat.encode(record.messages) == role.prompt_ids(chain_problem(chain), context)


def test_every_word_is_in_the_vocabulary_and_responses_survive_decoding(files, chat):
    records = read_records(files.phase1) + read_records(files.phase2)
    words = {word for record in records for word in (record.messages[0]["content"] + " " + record.response).split()}
    assert words == set(VOCABULARY) - {"<pad>", "<s>", "</s>", "<unk>", "answer"}
    vocabulary = {word: index for index, word in enumerate(VOCABULARY)}
    for record in records[::50]:
        assert chat.decode([vocabulary[word] for word in record.response.split()]) == record.response


def test_files_depend_on_the_seed_and_begin_alike_whatever_their_length(files, tmp_path):
    again = write_warmup_records(tmp_path / "a", seed=0, phase1_records=10, short_records=10, phase2_records=10)
    other = write_warmup_records(tmp_path / "b", seed=1, phase1_records=10, short_records=10, phase2_records=10)
    for one, same, different in zip(
        (files.phase1, files.phase2), (again.phase1, again.phase2), (other.phase1, other.phase2), strict=True
    ):
        assert read_records(one)[:10] == read_records(same)
        assert read_records(same) != read_records(different)


def test_a_whole_conversation_ends_in_the_stop_token(chat):
    messages = [{"role": "user", "content": "solve 1 a + 2 ?"}, {"role": "assistant", "content": "a 3 \\boxed{ 3 }"}]
    rendered = chat.render(messages, add_generation_prompt=False)
    assert rendered == "<s> solve 1 a + 2 ? answer a 3 \\boxed{ 3 } </s>"
