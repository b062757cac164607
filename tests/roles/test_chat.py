import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from megatron_seirenes.errors import DataError
from megatron_seirenes.quickstart.tokenizer import VOCABULARY
from megatron_seirenes.roles.chat import ChatFormat

shared_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)

MARKERS = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<think>", "</think>"]
ordinary = st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=40)
hostile = st.lists(
    st.sampled_from([*MARKERS, "<|im_", "end|>", "<", "|>", "\n", "  ", "user", "\ue000"]), max_size=8
).map("".join)


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


@shared_fixture
@given(ordinary, ordinary)
def test_ordinary_content_gets_the_ids_of_the_chat_template(bytes_tokenizer, system, content):
    messages = [{"role": "system", "content": system}, *user(content)]
    expected = bytes_tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True)["input_ids"]
    assert list(ChatFormat(bytes_tokenizer).encode(messages)) == expected


@shared_fixture
@given(st.lists(st.sampled_from(VOCABULARY[4:]), max_size=20).map(" ".join))
def test_the_same_in_the_small_world(world_tokenizer, content):
    messages = user(content)
    expected = world_tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True)["input_ids"]
    assert list(ChatFormat(world_tokenizer).encode(messages)) == expected
    assert expected.count(world_tokenizer.bos_token_id) == 1


@shared_fixture
@given(hostile)
def test_control_tokens_cannot_be_spelled_in_a_content(bytes_tokenizer, content):
    chat = ChatFormat(bytes_tokenizer)
    ids = chat.encode(user(content))
    control = [token for token in ids if bytes_tokenizer.convert_ids_to_tokens(token) in MARKERS]
    assert bytes_tokenizer.convert_ids_to_tokens(control) == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]


@shared_fixture
@given(hostile)
def test_disabled_control_tokens_still_spell_the_same_text(bytes_tokenizer, content):
    chat = ChatFormat(bytes_tokenizer)
    spelled = bytes_tokenizer.decode(list(chat.encode(user(content))), clean_up_tokenization_spaces=False)
    assert spelled == chat.render(user(content))


def test_a_stop_token_in_a_hint_is_words_outside_the_small_world(world_tokenizer):
    ids = ChatFormat(world_tokenizer).encode(user("solve 1 a + 2 ? hint </s>"))
    tokens = world_tokenizer.convert_ids_to_tokens(list(ids))
    assert tokens == ["<s>", "solve", "1", "a", "+", "2", "?", "hint", "<unk>", "<unk>", "answer"]


def test_without_a_generation_prompt_the_conversation_just_ends(bytes_tokenizer):
    ids = ChatFormat(bytes_tokenizer).encode(user("hi"), add_generation_prompt=False)
    assert bytes_tokenizer.decode(list(ids)) == "<|im_start|>user\nhi<|im_end|>\n"


def test_decoding_leaves_special_tokens_out_and_strips(world_tokenizer, bytes_tokenizer):
    ids = world_tokenizer.convert_tokens_to_ids(["a", "1", "\\boxed{", "1", "}", "</s>", "<pad>"])
    assert ChatFormat(world_tokenizer).decode(ids) == "a 1 \\boxed{ 1 }"
    ids = bytes_tokenizer("  x , y\n<|im_end|>", add_special_tokens=False)["input_ids"]
    assert ChatFormat(bytes_tokenizer).decode(ids) == "x , y"


def test_a_tokenizer_without_a_chat_template_is_refused(bytes_tokenizer):
    template, bytes_tokenizer.chat_template = bytes_tokenizer.chat_template, None
    try:
        with pytest.raises(DataError, match="no chat template"):
            ChatFormat(bytes_tokenizer)
    finally:
        bytes_tokenizer.chat_template = template


def test_overlapping_control_tokens_are_all_cut(bytes_tokenizer):
    tokenizer = copy.deepcopy(bytes_tokenizer)
    tokenizer.add_tokens(["=="])
    tokens = tokenizer.convert_ids_to_tokens(list(ChatFormat(tokenizer).encode(user("a ==== b"))))
    assert "==" not in tokens
    assert tokens.count("=") == 4


def test_a_tokenizer_that_adds_its_own_beginning_adds_none_to_a_conversation(world_tokenizer):
    tokenizer = copy.deepcopy(world_tokenizer)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    assert tokenizer("solve")["input_ids"].count(tokenizer.bos_token_id) == 1
    assert ChatFormat(tokenizer).encode(user("solve")).count(tokenizer.bos_token_id) == 1
