"""Google's `.npz` into this project's weight files; needs no MindSpore."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from src.array_io import Mapped, Weight
from src.errors import UserError
from src.npz_file import NpzFile, open_npz
from src.npz_map import GOOGLE_MEAN, GOOGLE_STD, BitArchitecture, map_bit
from src.vit_map import is_vit, map_vit
from src.weight_file import write_weights

RECORD_FORMAT = 1


def google_weights(npz: NpzFile) -> tuple[list[Weight], dict]:
    """Return the arrays of a file under our names and in our axis order, not yet loaded, and the record.

    Raises:
        UserError: the file is no BiT or ViT of the zoo.
    """
    try:
        architecture, params = map_vit(npz.shapes) if is_vit(npz.shapes) else _map_bit(npz.shapes)
        network = architecture.name
    except UserError as error:
        raise UserError(f"{npz.path}: {error}") from None
    read = lru_cache(maxsize=1)(npz.read)  # an array that is stacked over the depth gives many Parameters
    weights = [Weight(param.name, param.shape, partial(_load, read, param)) for param in params]
    record = {
        "format": RECORD_FORMAT,
        "network": network,
        "class_num": architecture.class_num,
        **architecture.record,
        "image_mean": list(GOOGLE_MEAN),
        "image_std": list(GOOGLE_STD),
        "source": npz.path.name,
        "sha256": npz.sha256(),
    }
    return weights, record


def convert(npz_path: str | os.PathLike, weight_path: str | os.PathLike) -> dict:
    """Write a BiT or ViT `.npz` as `.ckpt` or `.safetensors` and return the record that travels in it.

    Raises:
        UserError: the input is no whole file of the zoo, or the output cannot be written or is the input.
    """
    if Path(npz_path).resolve() == Path(weight_path).resolve():
        raise UserError(f"{npz_path} would be overwritten by its own conversion; choose another output")
    with open_npz(npz_path) as npz:
        weights, record = google_weights(npz)
        write_weights(weight_path, weights, record)
    return record


def _map_bit(shapes: Mapping[str, tuple]) -> tuple[BitArchitecture, list[Mapped]]:
    architecture, params = map_bit(shapes)
    return architecture, [
        Mapped(name, shape, key, partial(np.transpose, axes=axes)) for key, name, axes, shape in params
    ]


def _load(read: Callable[[str], np.ndarray], param: Mapped) -> np.ndarray:
    return param.turn(read(param.key))
