"""Reader of `.npz` files from elsewhere: shapes without reading the data, then one array at a time.

Pickled objects are never loaded. float16, float64 and bfloat16 (for NumPy raw `V2`) become float32.
"""

from __future__ import annotations

import ast
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from src.array_io import count, damaged, fill, open_binary, sha256_of, widen
from src.errors import UserError

_SUFFIX = ".npy"
_BFLOAT16 = ("|V2", "<V2", "bfloat16")
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_MAX_HEADER = 10_000  # bytes of one array's header; NumPy's own limit
_MAX_DEFLATE = 1040  # no deflated byte stands for more than this many
# what zipfile and the parsing of a header raise on broken files
_FAULTS = (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError, MemoryError)
_FAULTS += (ArithmeticError, LookupError, SyntaxError, TypeError, ValueError)


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: str
    raw: np.dtype
    fortran: bool


class NpzFile:
    """An opened `.npz` file; a context manager.

    Attributes:
        path: the file.
        shapes: name -> shape of every array.
    """

    def __init__(self, path: Path, stream: BinaryIO):
        self.path = path
        self._stream = stream
        self._archive = zipfile.ZipFile(stream)
        self.shapes = {}
        for name, member in self._members():
            with self._archive.open(member) as content:
                header = _read_header(content)
                position = content.tell()
            if header.dtype not in _FLOATS:
                raise UserError(f"{path}: '{name}' is {header.dtype}, but weights are {', '.join(_FLOATS)}")
            if position + count(header.shape) * header.raw.itemsize != member.file_size:
                raise ValueError(f"'{name}' of shape {header.shape} does not have the size that it claims")
            self.shapes[name] = header.shape

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(self, *_) -> None:
        self._archive.close()
        self._stream.close()

    def read(self, name: str) -> np.ndarray:
        """Return one array as float32; the zip's CRC of it is checked."""
        try:
            with self._archive.open(name + _SUFFIX) as content:
                header = _read_header(content)
                raw = np.empty(header.shape[::-1] if header.fortran else header.shape, header.raw)
                fill(content, raw)
        except _FAULTS as error:
            raise damaged(self.path, f"is damaged: '{name}' cannot be read ({error})") from None
        array = widen(raw, header.dtype).astype(np.float32, copy=False)
        return array.T if header.fortran else array

    def sha256(self) -> str:
        """Return the checksum of the whole file."""
        return sha256_of(self._stream)

    def _members(self) -> Iterator[tuple[str, zipfile.ZipInfo]]:
        size = self.path.stat().st_size
        members = self._archive.infolist()
        if not any(member.filename.endswith(_SUFFIX) for member in members):
            raise ValueError("it is a zip archive without arrays")
        for member in members:
            name = member.filename[: -len(_SUFFIX)]
            if not member.filename.endswith(_SUFFIX) or name in self.shapes:
                raise ValueError(f"'{member.filename}' is no array, or stands there twice")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("it is compressed in an unknown way")
            if member.compress_size > size or member.file_size > _MAX_DEFLATE * (member.compress_size + 1):
                raise ValueError(f"'{name}' claims {member.file_size} bytes")
            yield name, member


def open_npz(path: str | os.PathLike) -> NpzFile:
    """Open a `.npz` file of floating-point arrays and read the shapes.

    Raises:
        UserError: the file is missing, damaged, something else, or holds other things than weights.
    """
    path = Path(path)
    stream = open_binary(path, "an npz file")
    try:
        return NpzFile(path, stream)
    except UserError:
        stream.close()
        raise
    except _FAULTS as error:
        stream.close()
        raise damaged(path, f"is not a whole npz file: {error}") from None


def _read_header(content: BinaryIO) -> _Header:
    """Read what stands before the data of an `.npy` file: magic, version, length, a dictionary as text."""
    major, _ = np.lib.format.read_magic(content)
    length = int.from_bytes(content.read(2 if major == 1 else 4), "little")
    if length > _MAX_HEADER:
        raise ValueError(f"a header of {length} bytes")
    header = ast.literal_eval(content.read(length).decode("latin1").strip())
    descr, shape = header["descr"], header["shape"]
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"a shape of {shape}")
    if descr in _BFLOAT16:
        return _Header(shape, "bfloat16", np.dtype("<u2"), header["fortran_order"])
    raw = np.dtype(descr)
    return _Header(shape, raw.name, raw, header["fortran_order"])
