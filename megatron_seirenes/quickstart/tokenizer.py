"""Makes the tokenizer of the small world: one token a word, 32 words, a chat template, loadable by AutoTokenizer.

A prompt reads `<s> {user turn} answer`, for both roles: the word `answer` opens the response. Words outside the
vocabulary become `<unk>`.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from megatron_seirenes.problems.chains import LABELS, MODULUS, OPERATIONS

PAD, BOS, EOS, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
VOCABULARY = (
    *(PAD, BOS, EOS, UNKNOWN),
    *("solve", "mislead", "?", "hint", "answer", "claim", "\\boxed{", "}"),
    *OPERATIONS,
    *LABELS,
    *map(str, range(MODULUS)),
)
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %} {{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %} answer {{ message['content'] }} {{ eos_token }}"
    "{% else %}{{ raise_exception('the small world has user and assistant turns only') }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %} answer{% endif %}"
)


def make_tokenizer(out: str | Path) -> PreTrainedTokenizerBase:
    """Saves the tokenizer into the folder `out` (made if need be) and returns it."""
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(VOCABULARY)}, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token=PAD, bos_token=BOS, eos_token=EOS, unk_token=UNKNOWN
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(str(out))
    return tokenizer
