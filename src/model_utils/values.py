"""How text becomes a value: the types of the configuration, and what each accepts.

Numbers are read as people write them: `1e-3` is a number, `017` is seventeen, `1:30` and `nan` are errors.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
from pathlib import Path
from typing import Any, Union

Raw = Union[str, "list[str]"]
NAME_BYTES, PATH_BYTES = 255, 4000  # what file systems take, with room for the names below a path


def abbreviated(raw: Raw) -> str:
    """Return `raw` as it goes into a message: quoted, on one line, not endless."""
    text = repr(raw)
    return text if len(text) <= 80 else text[:76] + " ..."


def convert(type_name: str, raw: Raw) -> Any:
    """Turn text, or a list of texts, into a value; a `ValueError` may hold the reason."""
    function = TYPES[type_name][1]
    if type_name in _LISTS:
        return function(_items(raw))
    if isinstance(raw, list):
        raise ValueError("one value, not a list")
    return function(raw)


def absolute_path(text: str) -> str:
    """Return a path as seen from the working directory, with `~` unfolded and links left alone."""
    try:
        path = Path(_str(text)).expanduser().absolute()
    except RuntimeError:
        raise ValueError("there is no such user") from None
    if any(len(os.fsencode(name)) > NAME_BYTES for name in path.parts) or len(os.fsencode(path)) > PATH_BYTES:
        raise ValueError(f"a name is longer than {NAME_BYTES} bytes or the path than {PATH_BYTES}")
    return str(path)


def _float(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text.strip()):
        raise ValueError
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("too large")
    return number


def _int(text: str) -> int:
    number = _float(text)
    if not number.is_integer():
        raise ValueError
    if abs(number) >= 2**31:
        raise ValueError("too large, the limit is 2147483647")
    return int(number)


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "yes", "on", "1", "false", "no", "off", "0"):
        raise ValueError
    return word in ("true", "yes", "on", "1")


def _str(text: str) -> str:
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        raise ValueError("control characters or bytes that are not UTF-8")
    return text


def _name(text: str) -> str:
    if text in (".", "..") or "/" in text or "\\" in text:
        raise ValueError
    return _str(text)


def _items(raw: Raw) -> list[str]:
    """Split `1,2` and `[1, 2]`; a YAML list is split already."""
    if isinstance(raw, list):
        return raw
    text = raw.strip()
    return (text[1:-1] if text.startswith("[") and text.endswith("]") else text).split(",")


def _size(items: list[str]) -> int | tuple[int, int]:
    if len(items) not in (1, 2):
        raise ValueError
    numbers = tuple(map(_int, items))
    return numbers if len(numbers) == 2 else numbers[0]


def _steps(items: list[str]) -> list[int]:
    numbers = list(map(_int, items))
    if len(numbers) < 2 or any(step >= later for step, later in zip(numbers, numbers[1:])):
        raise ValueError
    return numbers


def _indices(items: list[str]) -> tuple[int, ...]:
    return tuple(map(int, _epochs([str(_int(item)) for item in items])))


def _epochs(items: list[str]) -> tuple[float, ...]:
    numbers = tuple(map(_float, items))
    if any(epoch >= later for epoch, later in zip(numbers, numbers[1:])):
        raise ValueError
    return numbers


def _augment(items: list[str]) -> tuple[int, float]:
    if len(items) != 2:
        raise ValueError
    number, strength = _int(items[0]), _float(items[1])
    if number < 1 or not 0 <= strength <= 10:
        raise ValueError
    return number, strength


def _words(items: list[str]) -> tuple[str, ...]:
    words = tuple(_str(item).strip() for item in items)
    if not all(words):
        raise ValueError
    return words


def _triple(items: list[str]) -> tuple[float, float, float]:
    numbers = tuple(map(_float, items))
    if len(numbers) not in (1, 3):
        raise ValueError
    return numbers * (3 // len(numbers))


def _resume(text: str) -> str:
    return "auto" if text.strip().lower() == "auto" else absolute_path(text)


_LISTS = ("size", "steps", "indices", "epochs", "augment", "words", "triple")
TYPES = {
    "int": ("a whole number", _int),
    "float": ("a number", _float),
    "bool": ("true or false", _bool),
    "str": ("text", _str),
    "name": ("a name without / and \\", _name),
    "url": ("an address or a path", _str),
    "path": ("a path", absolute_path),
    "resume": ("auto or a path", _resume),
    "size": ("a whole number or a pair height,width", _size),
    "steps": ("two or more whole numbers, each larger than the one before,", _steps),
    "indices": ("one or more whole numbers, each larger than the one before,", _indices),
    "epochs": ("one or more numbers, each larger than the one before,", _epochs),
    "augment": ("a pair such as 2,9: operations from 1 up, strength 0 to 10", _augment),
    "words": ("words with commas between them", _words),
    "triple": ("a number or three numbers red,green,blue", _triple),
}
