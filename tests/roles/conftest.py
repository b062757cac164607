"""Two tokenizers made on the spot: the small world's, and a byte-level one with a chat template like Qwen's."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from megatron_seirenes.quickstart.tokenizer import make_tokenizer

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] | trim }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def world_tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def bytes_tokenizer():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=[]
    )
    backend.train_from_iterator(
        ["user assistant system solve the end of this <|im_ | end |> question\n\n"] * 3, trainer
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.add_tokens(["<think>", "</think>", "  "])  # not special, as in Qwen3; runs of blanks, as in others
    tokenizer.chat_template = CHATML
    return tokenizer
