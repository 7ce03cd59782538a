"""Where exported files come to lie: names that MindSpore takes, and nothing of the user's replaced."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from src.errors import UserError


@contextlib.contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """The folder under a path without spaces or other letters than MindSpore's export takes."""
    with tempfile.TemporaryDirectory(prefix="export-") as place:
        link = Path(place) / "here"
        link.symlink_to(folder.absolute(), target_is_directory=True)
        yield link


def plain(name: str) -> str:
    """A file's name with the letters alone that MindSpore's export takes."""
    return re.sub(r"[^0-9A-Za-z_.-]", "_", name)


def check_replaceable(places: Iterable[Path]) -> None:
    """Raise `UserError` unless what is there is nothing, a file, or a folder of weights of an export."""
    for place in places:
        if place.is_dir() and any(not re.fullmatch(r"data_\d+", path.name) for path in place.iterdir()):
            raise UserError(f"{place} would be replaced, and holds other files; choose another file_name")


def move(source: Path, target: Path) -> None:
    """Put a finished file, or folder of variables, into its place."""
    if target.is_dir():
        shutil.rmtree(target)
    for path in (source, *source.rglob("*")):  # MindSpore's own modes keep everybody else out
        path.chmod(0o755 if path.is_dir() else 0o644)
    source.replace(target)
