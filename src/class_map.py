"""The class map: which class name has which index, kept beside a checkpoint so that labels cannot shift."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from src.atomic import replacing
from src.errors import UserError
from src.user_files import read_json

CLASS_MAP = "class_map.json"  # its name beside a checkpoint


def write_class_map(path: str | os.PathLike[str], class_names: Sequence[str]) -> None:
    """Write `{name: index}` as JSON; a reader sees the old file or the new one, never half of it."""
    text = json.dumps({name: index for index, name in enumerate(class_names)}, indent=1)
    with replacing(Path(path)) as stream:
        stream.write(f"{text}\n".encode())


def read_class_map(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Read what `write_class_map` wrote; the indices must be 0..n-1, each once."""
    try:
        indices = read_json(path)
    except OSError as error:
        raise UserError(f"cannot read class map {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"class map {path} is not JSON ({error}); expected {{name: index}}") from error
    if not isinstance(indices, dict) or any(type(index) is not int for index in indices.values()):
        raise UserError(f"class map {path} must be a JSON object of the form {{name: index}}")
    if not indices or sorted(indices.values()) != list(range(len(indices))):
        raise UserError(
            f"class map {path} must hold the indices 0 to n-1, each once; "
            f"it has {len(indices)} names with the indices {_short(sorted(indices.values()))}"
        )
    return tuple(sorted(indices, key=indices.__getitem__))


def check_class_order(expected: Sequence[str], found: Sequence[str]) -> None:
    """Raise `UserError` with the first differences unless both have the same names in the same order."""
    if tuple(expected) == tuple(found):
        return
    missing = sorted(set(expected) - set(found))
    extra = sorted(set(found) - set(expected))
    if missing or extra:
        detail = f"missing: {_short(missing)}; unknown: {_short(extra)}"
    else:
        pairs = list(zip(expected, found))
        moved = [f"{i}: {want!r} / {came!r}" for i, (want, came) in enumerate(pairs) if want != came]
        detail = f"same names in another order, index: expected / found = {_short(moved)}"
    raise UserError(
        f"the classes are not those that the network is trained on: expected {len(expected)} classes, "
        f"found {len(found)}; {detail}; use data that belong together"
    )


def _short(items: Sequence[object], limit: int = 5) -> str:
    if not items:
        return "none"
    shown = ", ".join(str(item) for item in items[:limit])
    return shown + (f" and {len(items) - limit} more" if len(items) > limit else "")
