import json

import pytest

from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.supervised import Record, read_records


def write(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_messages_and_prompts(tmp_path):
    system = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    path = write(tmp_path / "r.jsonl", {"messages": system, "response": " a "}, "", {"prompt": "p", "response": "b"})
    assert read_records(path) == [
        Record(tuple(system), " a "),
        Record(({"role": "user", "content": "p"},), "b"),
    ]


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        ("{", "not JSON"),
        ("[1]", "a JSON object expected, list seen"),
        ({"prompt": "p"}, "`response` is None"),
        ({"prompt": "p", "response": ""}, "`response` is ''"),
        ({"response": "r"}, "either `messages` or `prompt` expected; keys seen: response"),
        ({"response": "r", "prompt": "p", "messages": []}, "either `messages` or `prompt`"),
        ({"response": "r", "prompt": 3}, "is no list of messages"),
        ({"response": "r", "messages": []}, "is no list of messages"),
        ({"response": "r", "messages": [{"role": "user"}]}, "is no list of messages"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, seen):
    path = write(tmp_path / "r.jsonl", {"prompt": "p", "response": "r"}, row)
    with pytest.raises(DataError) as caught:
        read_records(path)
    assert f"{path}, row 2: " in str(caught.value)
    assert seen in str(caught.value)


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_records(tmp_path / "r.jsonl")
    with pytest.raises(DataError, match="holds no warm-up records"):
        read_records(write(tmp_path / "r.jsonl", ""))
