import json

import pytest

from megatron_seirenes.errors import DataError
from megatron_seirenes.roles.tokenizer import load_tokenizer, stop_ids


def test_a_saved_tokenizer_loads_to_the_same(world_tokenizer, tmp_path):
    world_tokenizer.save_pretrained(str(tmp_path))
    loaded = load_tokenizer(tmp_path)
    assert loaded.get_vocab() == world_tokenizer.get_vocab()
    assert loaded.chat_template == world_tokenizer.chat_template


def test_folders_without_a_tokenizer(tmp_path):
    with pytest.raises(DataError, match="no such model folder"):
        load_tokenizer(tmp_path / "none")
    with pytest.raises(DataError, match="no tokenizer that can be loaded"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"eos_token_id": [9, 7, 9]}, (2, 7, 9)), ({"eos_token_id": 2}, (2,)), ({}, (2,)), (None, (2,))],
)
def test_stop_ids_come_from_the_generation_config_and_the_tokenizer(world_tokenizer, tmp_path, config, expected):
    if config is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert stop_ids(tmp_path, world_tokenizer) == expected


def test_stop_ids_that_cannot_be_read(world_tokenizer, tmp_path):
    path = tmp_path / "generation_config.json"
    for content, fault in [
        ('{"eos_token_id": "</s>"}', "eos_token_id is '</s>'"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
    ]:
        path.write_text(content)
        with pytest.raises(DataError, match=fault):
            stop_ids(tmp_path, world_tokenizer)
