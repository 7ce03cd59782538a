"""What `preprocess.py` does: the evaluation's own images and transforms, written as files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from src import dataset
from src.cpu_kernels.pixels import get_pixels
from src.errors import UserError
from src.infer_result import write_labels, write_tensors
from src.loader import PADDING, EvalBatches
from src.sidecar import read_sidecar

log = logging.getLogger(__name__)


def preprocess(cfg) -> int:
    """Write a tensor for each image of the evaluation set, and the labels; return how many.

    Raises:
        UserError: the images cannot be used, or the folder holds tensors of another run.
    """
    sidecar = read_sidecar(cfg.model_path)
    names = sidecar.get("class_names")
    samples = dataset.open_eval(cfg, names)
    dataset.check_class_num(sidecar["class_num"], samples, allow_unused=names is not None)
    folder = Path(cfg.preprocess_path)
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; choose another preprocess_path, or remove what is in it")
    pixels = get_pixels(cfg.cpu_kernels)
    batches = dataset.eval_batches(cfg, samples, sidecar["preprocess"], pixels=pixels)
    labels: dict[str, int] = {}
    count = write_tensors(folder, _rows(batches, samples, labels))
    if not count:
        raise UserError(f"none of {len(samples)} images can be read, such as {samples.names[0]}")
    write_labels(folder, labels)
    log.info("%d tensors of %d images in %s", count, len(samples), folder)
    return count


def _rows(batches: EvalBatches, samples, labels: dict[str, int]) -> Iterator[tuple[list[str], np.ndarray]]:
    """Names and images without the padding; notes the labels."""
    for step, (images, wanted) in enumerate(batches):
        rows = np.flatnonzero(wanted != PADDING)
        names = [samples.names[index] for index in batches.indices(step)[rows]]
        labels.update(zip(names, wanted[rows].tolist()))
        yield names, images[rows]
