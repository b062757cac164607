r"""From a conversation to token ids, through the model's own chat template, and back to text.

The template is applied once and alone decides about control tokens (no second beginning-of-sequence). Inside the
contents of messages control tokens are disabled: a hint that spells `<|im_end|>` is ordinary text and cannot end the
user's turn. To that end every added token spelled inside a content is cut after its first character before the
template is rendered, and the pieces are tokenised one by one; the ids still decode to the same text. Contents without
such a spelling get exactly the ids of `apply_chat_template(tokenize=True)`.

Refused: a tokenizer without a chat template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain

from transformers import PreTrainedTokenizerBase

from megatron_seirenes.errors import DataError

_PRIVATE_USE = range(0xE000, 0xF8FF)


class ChatFormat:
    """A tokenizer seen as the format of conversations. Holds no state of its own."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        if not tokenizer.chat_template:
            raise DataError(f"{tokenizer.name_or_path}: the tokenizer has no chat template")
        self._tokenizer = tokenizer
        # Some vocabularies add single symbols or runs of blanks as tokens: these control nothing.
        control = (token for token in tokenizer.get_added_vocab() if len(token) > 1 and not token.isspace())
        spelled = sorted(control, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, spelled))) if spelled else None

    def encode(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> tuple[int, ...]:
        """The ids of a conversation of {"role", "content"} messages, ready to be answered."""
        cut = _unused_character(messages)
        disarmed = [{**message, "content": self._disarm(message["content"], cut)} for message in messages]
        rendered = self._tokenizer.apply_chat_template(
            disarmed, tokenize=False, add_generation_prompt=add_generation_prompt
        )
        pieces = [piece for piece in str(rendered).split(cut) if piece]
        encoded = [self._tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in pieces]
        return tuple(chain.from_iterable(encoded))

    def render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """The conversation as text, for people; never tokenise it, `encode` does."""
        return str(
            self._tokenizer.apply_chat_template(
                [dict(message) for message in messages], tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a response without special tokens, stripped."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False).strip()

    def _disarm(self, content: str, cut: str) -> str:
        """The content with every spelled control token cut; repeated, because tokens can overlap."""
        while self._control is not None and self._control.search(content):
            content = self._control.sub(lambda match: match[0][0] + cut + match[0][1:], content)
        return content


def _unused_character(messages: Sequence[Mapping[str, str]]) -> str:
    used = set().union(*(message["content"] for message in messages))
    return next(chr(code) for code in _PRIVATE_USE if chr(code) not in used)
