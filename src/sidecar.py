"""The JSON file beside an exported network: all that serving must know of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from src.atomic import replacing
from src.errors import UserError

SIDECAR_FORMAT = 1
KEYS = {
    "format": int,
    "network": str,
    "input": dict,  # name, shape (N, 3, H, W), type, what the pixels are
    "output": dict,  # name, shape (N, K), type
    "preprocess": dict,  # eval_image_size, eval_crop_ratio, interpolation, image_mean, image_std
    "class_num": int,
    "checkpoint": dict,  # file, sha256
}


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
    wrong = [key for key, kind in KEYS.items() if type((content or {}).get(key)) is not kind] if isinstance(
        content, dict
    ) else ["everything"]  # fmt: skip
    if wrong:
        raise UserError(f"{path} is not what export.py writes: {wrong[0]} is wrong; export again")
    if content["format"] > SIDECAR_FORMAT:
        raise UserError(
            f"{path} has format {content['format']}, this program knows {SIDECAR_FORMAT}; update it"
        )
    return content
