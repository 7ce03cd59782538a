"""The JSON file beside an exported network: all that serving must know of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from src.atomic import replacing
from src.errors import UserError
from src.transforms import INTERPOLATIONS

SIDECAR_FORMAT = 1


def sidecar_path(model: str | os.PathLike) -> Path:
    """`vit.mindir` -> `vit.mindir.json`."""
    return Path(model).with_name(Path(model).name + ".json")


def write_sidecar(path: str | os.PathLike, content: dict) -> None:
    """Write the file, whole or not at all."""
    path = Path(path)
    text = json.dumps({"format": SIDECAR_FORMAT, **content}, indent=1, ensure_ascii=False)
    with replacing(path) as stream:
        stream.write(text.encode() + b"\n")


def read_sidecar(model: str | os.PathLike) -> dict:
    """Read what stands beside an exported network.

    Raises:
        UserError: it is missing, damaged, or of a later version.
    """
    path = sidecar_path(model)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing; export.py writes it beside {Path(model).name}: export again"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}); export again") from None
    wrong = _wrong(content)
    if wrong:
        raise UserError(f"{path} is not what export.py writes: {wrong} is wrong; export again")
    if content["format"] > SIDECAR_FORMAT:
        raise UserError(
            f"{path} has format {content['format']}, this program knows {SIDECAR_FORMAT}; update it"
        )
    return content


def _wrong(content) -> str:
    """Name what programs rely on and is not as it should be; empty for nothing."""
    if not isinstance(content, dict):
        return "everything"
    image, how = content.get("input"), content.get("preprocess")
    checks = {
        "format": _is_count(content.get("format")),
        "network": isinstance(content.get("network"), str),
        "class_num": _is_count(content.get("class_num")),
        "class_names": content.get("class_names") is None or _is_list(content["class_names"], str),
        "preprocess": isinstance(how, dict)
        and _is_list(how.get("eval_image_size"), int, 2)
        and all(map(_is_count, how["eval_image_size"]))
        and _is_list(how.get("image_mean"), float, 3)
        and _is_list(how.get("image_std"), float, 3)
        and how.get("interpolation") in INTERPOLATIONS
        and isinstance(how.get("eval_crop_ratio"), (int, float))
        and 0 <= how["eval_crop_ratio"] <= 1,
    }
    if checks["preprocess"]:
        shape = image.get("shape") if isinstance(image, dict) else None
        checks["input"] = isinstance(shape, list) and shape[1:] == [3, *how["eval_image_size"]]
    return next((name for name, right in checks.items() if not right), "")


def _is_count(value) -> bool:
    return type(value) is int and value > 0


def _is_list(value, kind: type, length: int | None = None) -> bool:
    kinds = (int, float) if kind is float else (kind,)
    return isinstance(value, list) and length in (None, len(value)) and all(type(v) in kinds for v in value)
