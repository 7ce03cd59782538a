"""The files of an inference: tensors for the C++ program, its results, and the labels that judge them.

An image `daisy/a.jpg` is `images/daisy/a.jpg.bin`, its logits `daisy/a.jpg.bin` in the folder of results:
equal names in two classes, or with two suffixes, are two images.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from src.atomic import replacing
from src.errors import UserError
from src.metric import TopK
from src.user_files import open_regular, read_json

log = logging.getLogger(__name__)

IMAGES, LABELS = "images", "labels.json"
SUFFIX = ".bin"
MAX_LABEL_BYTES = 2**28  # of ImageNet's training images they are 2**26
BATCH = 1024  # results that are counted at a time


def write_tensors(folder: str | os.PathLike, batches: Iterable[tuple[list[str], np.ndarray]]) -> int:
    """Write each row of (names, images (N, 3, H, W)) as raw float32 and return how many there were."""
    images, count = Path(folder) / IMAGES, 0
    for names, rows in batches:
        for name, row in zip(names, rows):
            path = images / _file(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(np.ascontiguousarray(row, np.float32).tobytes())
            count += 1
    return count


def write_labels(folder: str | os.PathLike, labels: dict[str, int]) -> None:
    """Write name -> label, after the tensors: a folder with this file is whole."""
    with replacing(Path(folder) / LABELS) as stream:
        stream.write(labels_text(labels).encode())


def labels_text(labels: dict[str, int]) -> str:
    """Return name -> label as JSON; of a name that is no UTF-8 the broken bytes alone are escaped."""
    text = json.dumps(labels, indent=0, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


def read_labels(folder: str | os.PathLike) -> dict[str, int]:
    """Read name -> label.

    Raises:
        UserError: the file is missing or something else.
    """
    path = Path(folder) / LABELS
    try:
        labels = read_json(path, MAX_LABEL_BYTES)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; run preprocess.py to its end first") from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({getattr(error, 'strerror', None) or error}); run preprocess.py again"
        ) from None
    if not isinstance(labels, dict) or not all(type(v) is int and v >= 0 for v in labels.values()):
        raise UserError(f"{path} is no table of names and labels; run preprocess.py again")
    return labels


def judge(folder: str | os.PathLike, labels: dict[str, int], class_num: int) -> dict:
    """Count how many results have the label among their best one and best five.

    Args:
        folder: results of the C++ program; files with another suffix are ignored.
        labels: name -> label of every image.
        class_num: logits in a result, K.

    Returns:
        `{"top1", "top5", "samples"}` as `TopK.result`.

    Raises:
        UserError: a result is missing, of a wrong size, or of no image in `labels`.
    """
    folder = Path(folder)
    found = _results(folder)
    wanted = {_file(name): label for name, label in labels.items()}
    for word, names in (
        ("missing", wanted.keys() - found),
        ("of no image in labels.json", found - wanted.keys()),
    ):
        if names:
            raise UserError(
                f"{folder}: {len(names)} results of {len(wanted)} are {word}, such as {min(names)}; "
                "infer again into an empty folder"
            )
    outside = max(wanted.values(), default=0)
    if outside >= class_num:
        raise UserError(f"a label is {outside}, but the network has {class_num} classes; use data that agree")
    metric = TopK()
    names = list(wanted)
    for start in range(0, len(names), BATCH):
        part = names[start : start + BATCH]
        logits = np.stack([read_logits(folder / name, class_num) for name in part])
        metric.update(logits, np.array([wanted[name] for name in part], np.int32))
    return metric.result()


def read_logits(path: str | os.PathLike, class_num: int) -> np.ndarray:
    """Read one result, float32 of shape (K,).

    Raises:
        UserError: it cannot be read or has another size.
    """
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            data = stream.read() if size == 4 * class_num else b""
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; infer again") from None
    if len(data) != 4 * class_num:
        raise UserError(
            f"{path} has {size} bytes, expected {4 * class_num}: {class_num} float32; infer again"
        )
    return np.frombuffer(data, np.float32)


def _results(folder: Path) -> set[str]:
    if not folder.is_dir():
        raise UserError(f"the folder of results {folder} does not exist; run the C++ program first")
    return set(_walk(folder))


def _walk(folder: Path) -> Iterator[str]:
    for path in folder.rglob(f"*{SUFFIX}"):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _file(name: str) -> str:
    """Where an image's tensor and result lie below their folders; never outside of them."""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or parts[0] == "/":
        raise UserError(f"{name!r} is no name of an image below a folder; run preprocess.py again")
    return str(PurePosixPath(*parts)) + SUFFIX
