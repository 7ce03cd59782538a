"""Reading what a user names: never a pipe that waits for ever, an endless device, or all of a giant."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import BinaryIO

MAX_JSON_BYTES = 16 * 2**20


def open_regular(path: str | os.PathLike) -> BinaryIO:
    """Open a file that has an end. Raises `OSError`, for folders, pipes and devices, too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return os.fdopen(descriptor, "rb")


def read_bytes(path: str | os.PathLike, limit: int) -> bytes:
    """Read a file of at most `limit` bytes. Raises `OSError`."""
    with open_regular(path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", os.fspath(path))
    return data


def read_json(path: str | os.PathLike, limit: int = MAX_JSON_BYTES) -> object:
    """Read a JSON file, with a byte order mark or without.

    Raises:
        OSError: it cannot be read, or is larger than `limit` bytes.
        ValueError: it is no JSON.
    """
    try:
        return json.loads(read_bytes(path, limit).decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_regular(path: str | os.PathLike) -> bool:
    """Whether `path` is a file; unlike `Path.is_file` false, too, where we may not look."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False


def is_folder(path: str | os.PathLike) -> bool:
    """Whether `path` is a folder; unlike `Path.is_dir` false, too, where we may not look."""
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except OSError:
        return False
