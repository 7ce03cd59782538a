"""What the readers and writers of weight files share: opening, dtypes, blocks, comparing. Not a format."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Callable, NamedTuple

import numpy as np

from src.errors import UserError
from src.user_files import open_regular

BLOCK_BYTES = 16 * 2**20
MAX_AXES = 32  # of a NumPy array
RECORD_KEY = "weights_record"  # where both formats keep the record; no Parameter is named like this

# dtype -> what .ckpt and what .safetensors call it
DTYPES = {
    "float32": ("Float32", "F32"),
    "float16": ("Float16", "F16"),
    "bfloat16": ("BFloat16", "BF16"),
    "float64": ("Float64", "F64"),
    "int8": ("Int8", "I8"),
    "uint8": ("UInt8", "U8"),
    "int16": ("Int16", "I16"),
    "uint16": ("UInt16", "U16"),
    "int32": ("Int32", "I32"),
    "uint32": ("UInt32", "U32"),
    "int64": ("Int64", "I64"),
    "uint64": ("UInt64", "U64"),
    "bool": ("Bool", "BOOL"),
}


class Weight(NamedTuple):
    """An array to come: `load` is called when its turn has come, so that one is in memory at a time."""

    name: str
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]
    dtype: str = "float32"


class Stored(NamedTuple):
    """Where one array lies in a file; `pieces` are (offset, length) in bytes."""

    shape: tuple[int, ...]
    dtype: str
    pieces: list[tuple[int, int]]

    def check(self, name: str) -> None:
        """Raise `ValueError` when the bytes do not fit the shape and the dtype."""
        if len(self.shape) > MAX_AXES:
            raise ValueError(f"is damaged: '{name}' has {len(self.shape)} axes")
        wanted = count(self.shape) * storage(self.dtype).itemsize
        found = sum(length for _, length in self.pieces)
        if found != wanted:
            raise ValueError(f"is damaged: '{name}' of shape {self.shape} and {self.dtype} has {found} bytes")


class Mapped(NamedTuple):
    """One Parameter: its name and shape, the array in the file, and what turns that into this."""

    name: str
    shape: tuple[int, ...]
    key: str
    turn: Callable[[np.ndarray], np.ndarray]


def count(shape: tuple[int, ...]) -> int:
    """Return the number of elements; unlike `np.prod` it cannot overflow."""
    total = 1
    for size in shape:
        total *= size
    return total


def storage(dtype: str) -> np.dtype:
    """Return the NumPy dtype of the stored bytes; NumPy has no bfloat16, so its bits are read as uint16."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def widen(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Turn stored float16 or bfloat16 into float32, exactly; anything else is returned as it is."""
    if dtype == "bfloat16":
        bits = raw.astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)
    return raw.astype(np.float32) if dtype == "float16" else raw


def damaged(path: Path, reason: str) -> UserError:
    """Return the error for a file that is not what its name promises."""
    try:
        with open_regular(path) as stream:
            head, size = stream.read(16), os.fstat(stream.fileno()).st_size
    except OSError as error:
        return UserError(
            f"{path} {reason}, and now cannot be read: {error.strerror}; leave it while it is read"
        )
    kind = _kind(head)
    advice = (
        f"it looks like a {kind} file: rename it"
        if kind not in ("", path.suffix)
        else "copy or download it again"
    )
    return UserError(f"{path} ({size} bytes) {reason}; {advice}")


def _kind(head: bytes) -> str:
    """Guess the suffix that belongs to a file from its first bytes; empty when they say nothing."""
    if head.startswith(b"PK\x03\x04"):
        return ".npz"
    if head[8:9] == b"{":
        return ".safetensors"
    return ".ckpt" if head[:1] == b"\n" and b"\n" in head[2:7] else ""


def open_binary(path: Path, wanted: str) -> BinaryIO:
    """Open a binary file; refuse what cannot be one: missing, a folder, a pipe, empty, a web page, text."""
    try:
        stream = open_regular(path)
        head = stream.read(512)
        stream.seek(0)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; check the path of {wanted} or download it again") from None
    except IsADirectoryError:
        raise UserError(f"{path} is not a file; the path of {wanted} was wanted") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; the path of {wanted} was wanted") from None
    reason = None
    if not head:
        reason = "is empty"
    elif all(byte >= 32 or byte in b"\t\r\n" for byte in head):
        reason = f"is {'a web page' if head.lstrip().startswith(b'<') else 'text'}, not {wanted}"
    if reason:
        stream.close()
        raise damaged(path, reason)
    return stream


def fill(stream: BinaryIO, array: np.ndarray) -> None:
    """Fill a C-contiguous array from `stream`; raise `ValueError` when it ends too early."""
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, BLOCK_BYTES):
        part = flat[start : start + BLOCK_BYTES]
        if stream.readinto(part) != part.size:
            raise ValueError("is cut short")


def blocks(weight: Weight) -> Iterator[np.ndarray]:
    """Yield the bytes of one array in contiguous pieces; a transposed view is never copied as a whole."""
    array = weight.load()
    if array.shape != tuple(weight.shape) or array.dtype != weight.dtype:
        found = f"got {array.shape} {array.dtype}"
        raise ValueError(f"{weight.name}: announced {weight.shape} {weight.dtype}, {found}")
    rows = array if array.ndim else array.reshape(1)
    step = max(1, BLOCK_BYTES * len(rows) // max(1, array.nbytes))
    for start in range(0, max(1, len(rows)), step):
        yield np.ascontiguousarray(rows[start : start + step]).reshape(-1).view(np.uint8)


def crc_of(stream: BinaryIO, start: int, stop: int, crc: int = 0) -> int:
    """Return the CRC-32 of a part of a file, continued from `crc`."""
    stream.seek(start)
    for position in range(start, stop, BLOCK_BYTES):
        crc = zlib.crc32(stream.read(min(BLOCK_BYTES, stop - position)), crc)
    return crc


def sha256_of(stream: BinaryIO) -> str:
    """Return the SHA-256 of a whole file."""
    digest = hashlib.sha256()
    stream.seek(0)
    for block in iter(lambda: stream.read(BLOCK_BYTES), b""):
        digest.update(block)
    return digest.hexdigest()


def differences(wanted: Mapping[str, tuple], found: Mapping[str, tuple]) -> str:
    """Say in which names and shapes two sets of arrays differ; an empty text when they do not."""
    both = [name for name in wanted if name in found]
    lists = {
        "missing": [name for name in wanted if name not in found],
        "unexpected": [name for name in found if name not in wanted],
        "wrong shape": [
            f"{name} {tuple(found[name])} instead of {tuple(wanted[name])}"
            for name in both
            if tuple(wanted[name]) != tuple(found[name])
        ],
    }
    return "; ".join(
        f"{title} {len(names)}: {', '.join(names[:5])}" + (", ..." if len(names) > 5 else "")
        for title, names in lists.items()
        if names
    )
