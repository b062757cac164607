"""Data sets of the Hugging Face hub, by name, where there is a network or a filled cache."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download

from megatron_seirenes.errors import DataError


def hub_folder(name: str, revision: str | None, files: str | None) -> Path:
    """The local copy of a data set `owner/name`, only the files that match `files` when given.

    Raises DataError when it is neither in the cache nor to be had.
    """
    patterns = None if files is None else [files]
    try:
        return Path(snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=patterns))
    except Exception as error:  # the client raises its HTTP library's errors beside its own
        reason = " ".join(str(error).split())[:300]
        raise DataError(
            f"hub: the data set {name} is not in the cache and cannot be fetched ({type(error).__name__}: {reason}); "
            "give `path` to a copy of its files instead"
        ) from None
