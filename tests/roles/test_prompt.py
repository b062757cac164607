import hashlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.errors import DataError
from megatron_seirenes.roles.prompt import PACKAGED, load_prompt

GOOD = {"version": 1, "role": "reasoner", "system": None, "user": "{question}", "user_with_hint": None}

# A packaged prompt is what runs were made with: change its text only together with its version, and then this table.
DIGESTS = {
    ("adversary", 1): "3d3dd78f12a7",
    ("distractor", 1): "7816db27d192",
    ("chains_adversary", 1): "5ac68254cf2b",
    ("chains_reasoner", 1): "c21f4a569cb6",
    ("reasoner", 1): "6e67b7b8b773",
}


def digest(path: Path) -> str:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return hashlib.blake2b(repr(sorted(content.items())).encode(), digest_size=6).hexdigest()


def write(folder: Path, **changes: object) -> str:
    content = {key: value for key, value in (GOOD | changes).items() if value != "DROP"}
    path = folder / "prompt.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def test_packaged_prompts_are_pinned_to_their_versions():
    seen = {(path.stem, load_prompt(path.stem).version): digest(path) for path in PACKAGED.glob("*.yaml")}
    assert seen == DIGESTS


@pytest.mark.parametrize("name", [name for name, _ in DIGESTS])
def test_packaged_prompts_say_their_role(name):
    prompt = load_prompt(name)
    assert prompt.role in name
    assert (prompt.user_with_hint is None) == (prompt.role != "reasoner")


def test_the_reasoner_is_asked_for_a_box_and_not_warned():
    prompt = load_prompt("reasoner")
    system, turn = prompt.messages("Q", {"hint": "H"})
    assert "step by step" in system["content"]
    assert "\\boxed{}" in system["content"]
    assert turn == {"role": "user", "content": "Q\n\nH"}
    assert prompt.messages("Q", {})[0] == system


def test_the_small_world_s_turns():
    reasoner, adversary = load_prompt("chains_reasoner"), load_prompt("chains_adversary")
    assert reasoner.messages("9 a * 5", {}) == [{"role": "user", "content": "solve 9 a * 5 ?"}]
    assert reasoner.messages("9 a * 5", {"hint": "claim 7"})[0]["content"] == "solve 9 a * 5 ? hint claim 7"
    assert adversary.messages("9 a * 5", {})[0]["content"] == "mislead 9 a * 5 ?"


@given(st.text(), st.text())
def test_question_and_hint_reach_the_turn_as_they_are(question, hint):
    content = load_prompt("reasoner").messages(question, {"hint": hint})[-1]["content"]
    assert content == question + "\n\n" + hint


@pytest.mark.parametrize("question", ["{hint}", "{question}", "\\frac{1}{2} {x}", "{0}", "%s", "\\1 \\g<0>"])
def test_nothing_inside_a_question_is_expanded(question):
    content = load_prompt("reasoner").messages(question, {"hint": "{question}"})[-1]["content"]
    assert content == question + "\n\n{question}"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"version": "DROP"}, "key 'version' is missing"),
        ({"user_with_hint": "DROP"}, "key 'user_with_hint' is missing"),
        ({"assistant": "x"}, "unknown key 'assistant'; allowed: version, role"),
        ({"version": "1"}, "version: '1'"),
        ({"version": True}, "version: True"),
        ({"version": 0}, "version: 0"),
        ({"role": ""}, "role: ''"),
        ({"system": 3}, "system: 3; text expected"),
        ({"system": "about {question}"}, "system: placeholder {question} cannot be used here; allowed: none"),
        ({"user": None}, "user: None; text expected"),
        ({"user": "solve"}, "user: placeholder {question} is missing"),
        ({"user": "{question} {hint}"}, "user: placeholder {hint} cannot be used here; allowed: {question}"),
        ({"user": "{question} {answer}"}, "user: placeholder {answer} cannot be used here"),
        ({"user_with_hint": "{question}"}, "user_with_hint: placeholder {hint} is missing"),
    ],
)
def test_faults_name_file_and_key(tmp_path, changes, fault):
    path = write(tmp_path, **changes)
    with pytest.raises(DataError) as caught:
        load_prompt(path)
    assert f"{path}: {fault}" in str(caught.value)


def test_all_faults_are_told_at_once(tmp_path):
    with pytest.raises(DataError) as caught:
        load_prompt(write(tmp_path, version=0, role="", user="x"))
    assert len(str(caught.value).splitlines()) == 3


def test_braces_of_mathematics_are_no_placeholders(tmp_path):
    text = "{question} \\boxed{answer} \\frac{a}{b} {} { x }"
    assert load_prompt(write(tmp_path, user=text)).messages("Q", {})[0]["content"] == text.replace("{question}", "Q")


def test_files_that_are_no_prompts(tmp_path):
    with pytest.raises(DataError, match="unknown prompt 'judge'; packaged: adversary, chains_adversary"):
        load_prompt("judge")
    with pytest.raises(DataError, match="no such prompt file"):
        load_prompt(str(tmp_path / "none.yaml"))
    for content, fault in [
        ("[1]", "a mapping with the keys"),
        ("a: [", "cannot be read"),
        ("!!python/name:os.system ''", "cannot be read"),
    ]:
        (tmp_path / "bad.yaml").write_text(content)
        with pytest.raises(DataError, match=fault):
            load_prompt(str(tmp_path / "bad.yaml"))


def test_a_prompt_is_told_only_what_it_has_a_place_for():
    with pytest.raises(DataError, match="user_with_hint is null"):
        load_prompt("adversary").messages("Q", {"hint": "H"})
    with pytest.raises(DataError, match="no placeholder for answer"):
        load_prompt("adversary").messages("Q", {"answer": "3"})
