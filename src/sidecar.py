"""The JSON file beside an exported network: all that serving must know of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from src.atomic import replacing
from src.errors import UserError
from src.record import is_count, wrong_key
from src.user_files import read_json

SIDECAR_FORMAT = 1
PREPROCESS = ("eval_image_size", "eval_crop_ratio", "interpolation", "image_mean", "image_std")


def sidecar_path(model: str | os.PathLike) -> Path:
    """`vit.mindir` -> `vit.mindir.json`."""
    return Path(model).with_name(Path(model).name + ".json")


def write_sidecar(path: str | os.PathLike, content: dict) -> None:
    """Write the file, whole or not at all."""
    path = Path(path)
    text = json.dumps({"format": SIDECAR_FORMAT, **content}, indent=1, ensure_ascii=False)
    with replacing(path) as stream:
        stream.write(text.encode(errors="backslashreplace") + b"\n")


def read_sidecar(model: str | os.PathLike) -> dict:
    """Read what stands beside an exported network.

    Raises:
        UserError: it is missing, damaged, or of a later version.
    """
    path = sidecar_path(model)
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing; export.py writes it beside {Path(model).name}: export again"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({getattr(error, 'strerror', None) or error}); export again"
        ) from None
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
    missing = [key for key in ("format", "network", "class_num") if key not in content]
    wrong = "".join(missing[:1]) or wrong_key(content)
    if wrong or not is_count(content["format"]):
        return wrong or "format"
    image, how = content.get("input"), content.get("preprocess")
    if not isinstance(how, dict) or not how.keys() >= set(PREPROCESS) or wrong_key(how):
        return "preprocess"
    shape = image.get("shape") if isinstance(image, dict) else None
    return "" if isinstance(shape, list) and shape[1:] == [3, *how["eval_image_size"]] else "input"
