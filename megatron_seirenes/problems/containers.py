"""Rows out of files: JSONL, JSON, CSV, parquet and Arrow, single or as the shards of a data set's folder.

A row that cannot be parsed is yielded as a ValueError in its place, so that the reader can name it and go on. JSONL
rows are numbered by line, all others by record, from 1. Nothing here knows what a row means.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

from megatron_seirenes.errors import DataError

NumberedRows = Iterator[tuple[int, Any]]

# How data sets name the shards of one split: test-00000-of-00002.parquet, data-00001-of-00004.arrow.
_SHARD = re.compile(r"-\d+-of-\d+$")


def data_files(folder: Path, pattern: str | None) -> list[Path]:
    """The shards of one split in a data set's folder, in order.

    `pattern` is a glob inside the folder; without one the folder must hold a single split. Raises DataError for no
    file and for several splits, naming them.
    """
    found = sorted(
        path
        for path in (folder.rglob("*") if pattern is None else folder.glob(pattern))
        if path.suffix.lower() in CONTAINERS and path.is_file() and not path.name.startswith(".")
    )
    if pattern is None:
        # save_to_disk leaves dataset_info.json and state.json beside its shards; a hub folder has its own small files.
        found = [path for path in found if path.suffix != ".json"] or found
    if not found:
        where = f"matches {pattern!r}" if pattern else f"ends in {', '.join(CONTAINERS)}"
        raise DataError(f"{folder}: holds no file that {where}")
    splits = sorted({str(path.relative_to(folder).with_name(_SHARD.sub("", path.stem))) for path in found})
    if len(splits) > 1 and pattern is None:
        raise DataError(f"{folder}: holds several splits ({', '.join(splits)}); choose one with `files`, a glob")
    return found


def read_rows(path: Path) -> NumberedRows:
    """The numbered rows of one file. Raises DataError for a missing or unreadable file and an unknown suffix."""
    read = CONTAINERS.get(path.suffix.lower())
    if read is None:
        raise DataError(f"{path}: unknown file type {path.suffix!r}; known: {', '.join(CONTAINERS)}")
    try:
        yield from read(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError, csv.Error, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _jsonl_rows(path: Path) -> NumberedRows:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, _json_object(line)


def _json_object(line: str) -> Mapping[str, Any] | ValueError:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return ValueError(f"not JSON: {error}")
    return _object(row)


def _object(row: Any) -> Mapping[str, Any] | ValueError:
    return row if isinstance(row, dict) else ValueError(f"a JSON object expected, {type(row).__name__} seen")


def _json_rows(path: Path) -> NumberedRows:
    """A JSON array of objects, bare or as the only array of an object ({"data": [...]})."""
    content = json.loads(path.read_text(encoding="utf-8-sig"))
    if isinstance(content, dict):
        arrays = [value for value in content.values() if isinstance(value, list)]
        if len(arrays) != 1:
            raise ValueError(f"an array of objects expected; its {len(content)} keys hold {len(arrays)} arrays")
        content = arrays[0]
    if not isinstance(content, list):
        raise ValueError(f"an array of objects expected, {type(content).__name__} seen")
    yield from ((number, _object(row)) for number, row in enumerate(content, start=1))


def _csv_rows(path: Path) -> NumberedRows:
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from enumerate(csv.DictReader(file), start=1)


def _parquet_rows(path: Path) -> NumberedRows:
    with pyarrow.parquet.ParquetFile(path) as file:
        yield from enumerate((row for batch in file.iter_batches() for row in batch.to_pylist()), start=1)


def _arrow_rows(path: Path) -> NumberedRows:
    """Arrow's streaming format, as `Dataset.save_to_disk` writes it."""
    with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_stream(source) as reader:
        yield from enumerate((row for batch in reader for row in batch.to_pylist()), start=1)


CONTAINERS: dict[str, Callable[[Path], NumberedRows]] = {
    ".jsonl": _jsonl_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
    ".arrow": _arrow_rows,
}
