"""What files say of a network and its input, checked: the record of weights, the sidecar of an export."""

from __future__ import annotations

from collections.abc import Mapping

from src.pixels import INTERPOLATIONS
from src.transforms import MIN_STD

MAX_SIDE = 16_384  # pixels


def wrong_key(record: Mapping) -> str:
    """Name a key whose value no program of this project writes; empty for none. Any may be missing."""
    return next((key for key, right in CHECKS.items() if key in record and not right(record[key])), "")


def is_count(value: object) -> bool:
    """Whether `value` is a whole number from 1 up that arrays can have."""
    return type(value) is int and 0 < value < 2**31


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 1e30  # neither infinite nor none, in float32, too


def _is_triple(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


CHECKS = {
    "network": _is_text,
    "class_num": is_count,
    "class_names": lambda value: value is None or (isinstance(value, list) and all(map(_is_text, value))),
    "image_mean": _is_triple,
    "image_std": lambda value: _is_triple(value) and min(value) >= MIN_STD,
    "eval_image_size": lambda value: _is_pair(value) and max(value) <= MAX_SIDE,
    "eval_crop_ratio": lambda value: _is_number(value) and 0 <= value <= 1,
    "interpolation": lambda value: _is_text(value) and value in INTERPOLATIONS,
    "grid": lambda value: is_count(value) or _is_pair(value),
    "pool": lambda value: value in ("token", "mean"),
    "gelu": lambda value: value in ("tanh", "exact"),
    "pre_logits": lambda value: isinstance(value, bool),
}
