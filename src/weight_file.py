"""Weight files: `.ckpt` of MindSpore and `.safetensors`, streamed; one array is in memory at a time.

`ms.save_checkpoint` keeps everything twice in memory, and `ms.load_checkpoint` accepts a file that was cut
between two records. Files written here are read by MindSpore and by the safetensors package, carry a checksum
and a record (a small JSON dictionary: what the weights are), and appear under their name when complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from src.array_io import Stored, Weight, damaged, fill, open_binary, storage, widen
from src.atomic import replacing
from src.ckpt_format import parse_ckpt, write_ckpt
from src.errors import UserError
from src.record import wrong_key
from src.safetensors_format import parse_safetensors, write_safetensors

_FORMATS = {".ckpt": (parse_ckpt, write_ckpt), ".safetensors": (parse_safetensors, write_safetensors)}


SUFFIXES = tuple(_FORMATS)


class WeightFile:
    """An opened weight file, checked as a whole; a context manager.

    Attributes:
        record: what was given to `write_weights`; empty for files of other programs.
        shapes: name -> shape of every array.
    """

    def __init__(self, path: Path, stream: BinaryIO, index: Mapping[str, Stored], record: dict):
        self.record = record
        self.shapes = {name: stored.shape for name, stored in index.items()}
        self._path, self._stream, self._index = path, stream, index

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(self, *_) -> None:
        self._stream.close()

    def __iter__(self) -> Iterator[tuple[str, np.ndarray]]:
        return ((name, self.read(name)) for name in self._index)

    def read(self, name: str) -> np.ndarray:
        """Return one array as stored, float16 and bfloat16 as float32."""
        stored = self._index[name]
        try:
            raw = np.empty(stored.shape, storage(stored.dtype))
            flat, position = raw.reshape(-1).view(np.uint8), 0
            for start, length in stored.pieces:
                self._stream.seek(start)
                fill(self._stream, flat[position : position + length])
                position += length
        except (OSError, OverflowError, ValueError) as error:
            raise damaged(self._path, f"cannot be read: '{name}': {error}") from None
        return widen(raw, stored.dtype)


def open_weights(path: str | os.PathLike) -> WeightFile:
    """Open a `.ckpt` or `.safetensors` file of this project, of MindSpore or of the safetensors package.

    Raises:
        UserError: the file is missing, damaged, cut short or something else.
    """
    path = Path(path)
    parse, _ = _format(path)
    stream = open_binary(path, f"a {path.suffix} file")
    try:
        index, record = parse(stream, os.fstat(stream.fileno()).st_size)
        if not isinstance(record, dict):
            raise ValueError("is damaged: its record is not a table")
        if wrong_key(record):
            raise ValueError(f"is damaged: its record has no right {wrong_key(record)}")
    except (OSError, ValueError, RecursionError) as error:
        stream.close()
        reason = str(error) if str(error).startswith(("is ", "holds ")) else f"is damaged: {error}"
        raise damaged(path, reason) from None
    return WeightFile(path, stream, index, record)


def write_weights(path: str | os.PathLike, weights: Iterable[Weight], record: Mapping | None = None) -> None:
    """Write arrays and a record; the suffix of `path` chooses the format.

    The file is written under another name and renamed when complete; until then a file that already stands at
    `path` stays whole, whatever happens. Missing folders are created.

    Raises:
        UserError: the suffix is unknown, or the file cannot be written (disk full, no permission).
    """
    path = Path(path)
    _, write = _format(path)
    text = json.dumps(dict(record or {}))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            write(stream, weights, text)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {path}: {reason}; choose another place or free space") from None


def _format(path: Path) -> tuple:
    if path.suffix not in _FORMATS:
        known = " or ".join(_FORMATS)
        raise UserError(f"{path}: the suffix '{path.suffix}' is not that of a weight file, {known}")
    return _FORMATS[path.suffix]
