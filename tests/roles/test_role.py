import dataclasses

import pytest
import yaml

from megatron_seirenes.config.schema import RoleSettings
from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.tasks import make_task_problems
from megatron_seirenes.roles.chat import ChatFormat
from megatron_seirenes.roles.role import Roles

NAMES = ("reasoner", "adversary", "reasoner")
CHAINS = {
    "reasoner": RoleSettings(prompt="chains_reasoner"),
    "adversary": RoleSettings(prompt="chains_adversary", gate="chain_statements", gate_penalty=-0.5),
    "judge": RoleSettings(prompt="not there"),
}
PROBLEM = make_task_problems("chain_arithmetic", {}, "train", 1, seed=0)[0]


def test_roles_of_a_run(world_tokenizer):
    chat = ChatFormat(world_tokenizer)
    roles = Roles.build(CHAINS, NAMES, chat)
    assert list(roles) == ["reasoner", "adversary"]
    assert roles["reasoner"].prompt_text(PROBLEM, {}) == f"<s> solve {PROBLEM.question} ? answer"
    hinted = roles["reasoner"].prompt_ids(PROBLEM, {"hint": "claim 7"})
    assert world_tokenizer.decode(list(hinted)) == f"<s> solve {PROBLEM.question} ? hint claim 7 answer"
    assert roles["adversary"].prompt_text(PROBLEM, {}) == f"<s> mislead {PROBLEM.question} ? answer"


def test_gates_are_the_role_s_own(world_tokenizer):
    roles = Roles.build(CHAINS, NAMES, ChatFormat(world_tokenizer))
    assert roles["adversary"].admit("nonsense", PROBLEM) == "'nonsense' is no label of this question"
    assert roles["adversary"].admit("claim 7", PROBLEM) is None
    assert roles["adversary"].gate_penalty == -0.5
    assert roles["reasoner"].admit("nonsense", PROBLEM) is None


def test_without_settings_the_packaged_prompts_of_the_names_are_used(bytes_tokenizer):
    roles = Roles.build({}, NAMES, ChatFormat(bytes_tokenizer))
    assert roles["adversary"].prompt.name == "adversary"
    assert roles["adversary"].gate is None
    text = roles["adversary"].prompt_text(PROBLEM, {})
    assert PROBLEM.question in text
    assert text.count("<|im_start|>") == 3


def test_no_role_is_ever_shown_the_answer(bytes_tokenizer):
    secret = PROBLEM.__class__(id="p", question="What?", answer="SECRET")
    for role in Roles.build({}, NAMES, ChatFormat(bytes_tokenizer)).values():
        assert "SECRET" not in role.prompt_text(secret, {})


def test_refusals(world_tokenizer, tmp_path):
    chat = ChatFormat(world_tokenizer)
    with pytest.raises(DataError, match="unknown prompt 'discriminator'"):
        Roles.build({}, ("discriminator",), chat)
    with pytest.raises(DataError, match="unknown gate"):
        Roles.build({"adversary": RoleSettings(gate="polite")}, NAMES, chat)
    with pytest.raises(DataError, match=r"roles\.reasoner\.prompt: .* written for the role 'adversary'"):
        Roles.build({"reasoner": RoleSettings(prompt="adversary")}, NAMES, chat)
    path = tmp_path / "mine.yaml"
    content = {"version": 3, "role": "reasoner", "system": None, "user": "solve {question}", "user_with_hint": None}
    path.write_text(yaml.safe_dump(content))
    role = Roles.build({"reasoner": RoleSettings(prompt=str(path))}, ("reasoner",), chat)["reasoner"]
    assert role.prompt.version == 3


def test_a_note_stands_beside_its_question_and_the_adversary_is_not_shown_it(world_tokenizer):
    roles = Roles.build(CHAINS, NAMES, ChatFormat(world_tokenizer))
    noted = dataclasses.replace(PROBLEM, meta={**PROBLEM.meta, "note": "claim 7"})
    assert roles["reasoner"].prompt_text(noted, {}) == f"<s> solve {PROBLEM.question} ? hint claim 7 answer"
    assert roles["adversary"].prompt_text(noted, {}) == f"<s> mislead {PROBLEM.question} ? answer"
    both = {roles["reasoner"].prompt_text(noted, {"hint": f"a {n}"}).partition("hint ")[2] for n in range(10)}
    assert {text.startswith("claim 7 a") for text in both} == {True, False}
    assert all(sorted(text.split()) == sorted(["claim", "7", "a", text.split("a ")[1][0], "answer"]) for text in both)
