"""Loads the tokenizer of a model folder, without a network, and reads which ids end a response."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from megatron_seirenes.errors import DataError


def load_tokenizer(folder: str | Path, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of a local Hugging Face folder. Raises DataError when there is none."""
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: no such model folder")
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: holds no tokenizer that can be loaded: {error}") from None


def stop_ids(folder: str | Path, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The token ids that end a response, ascending: `eos_token_id` of generation_config.json and the tokenizer's own.

    Instruction-tuned models often end a turn with another token than their tokenizer's; missing it makes every answer
    run to the limit. Raises DataError when nothing names a stop token.
    """
    path = Path(folder) / "generation_config.json"
    named = _eos_of(path) if path.is_file() else []
    if tokenizer.eos_token_id is not None:
        named.append(tokenizer.eos_token_id)
    if not named:
        raise DataError(f"{folder}: neither generation_config.json nor the tokenizer names an end-of-sequence token")
    return tuple(sorted(set(named)))


def _eos_of(path: Path) -> list[int]:
    try:
        named = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: cannot be read as a JSON object: {error}") from None
    ids = named if isinstance(named, list) else [] if named is None else [named]
    if not all(type(one) is int for one in ids):
        raise DataError(f"{path}: eos_token_id is {named!r}; a token id or a list of token ids expected")
    return list(ids)
