"""Files that appear under their name when they are complete."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_SUFFIX = ".tmp"


def is_temporary(path: Path) -> bool:
    """Whether the file is what a killed process left of an unfinished one."""
    return re.fullmatch(rf"\..+\.[0-9a-f]{{8}}\{_SUFFIX}", path.name) is not None


def copy_file(source: Path, path: Path) -> None:
    """Copy a file; raises `OSError`."""
    with source.open("rb") as stream, replacing(path) as copy:
        shutil.copyfileobj(stream, copy)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that takes the place of `path` in the end, or vanishes."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, survives a power cut
    finally:
        os.close(folder)
