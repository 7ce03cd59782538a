"""CIFAR-10 and CIFAR-100 in the binary layout (https://www.cs.toronto.edu/~kriz/cifar.html).

A record is one label byte (CIFAR-100: coarse, then fine) and 3 x 32 x 32 bytes, all red first, row by row. A
file may hold any number of records. The pickled version is refused: unpickling runs code.
"""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from src.errors import MissingDataError, UserError
from src.user_files import is_regular, open_regular, read_bytes

log = logging.getLogger(__name__)

SIDE = 32
MAX_NAMES_BYTES = 100_000
PIXELS = 3 * SIDE * SIDE
CIFAR10_NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


@dataclass(frozen=True)
class Label:
    """One of the labels of a record: its byte, the number of classes, and the file with their names."""

    byte: int
    count: int
    names_file: str


@dataclass(frozen=True)
class Layout:
    """Where a version of CIFAR keeps what."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_bytes: int
    labels: dict[str, Label]
    pickled_folder: str
    archive: str


LAYOUTS = {
    "cifar10": Layout(
        folder="cifar-10-batches-bin",
        train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        test=("test_batch.bin",),
        label_bytes=1,
        labels={"fine": Label(byte=0, count=10, names_file="batches.meta.txt")},
        pickled_folder="cifar-10-batches-py",
        archive="cifar-10-binary.tar.gz",
    ),
    "cifar100": Layout(
        folder="cifar-100-binary",
        train=("train.bin",),
        test=("test.bin",),
        label_bytes=2,
        labels={
            "fine": Label(byte=1, count=100, names_file="fine_label_names.txt"),
            "coarse": Label(byte=0, count=20, names_file="coarse_label_names.txt"),
        },
        pickled_folder="cifar-100-python",
        archive="cifar-100-binary.tar.gz",
    ),
}


class Cifar:
    """The training or test images of CIFAR. Files are mapped into memory, not read.

    Attributes:
        class_names: names in the order of the labels.
        labels: int32, shape (N,).
        names: file and record, such as `data_batch_1.bin#17`.
    """

    def __init__(self, root: str | os.PathLike[str], *, name: str, train: bool, label: str = "fine"):
        """Open the files of one split.

        Args:
            root: folder of the `.bin` files, or the folder that holds the unpacked archive's folder.
            name: `cifar10` or `cifar100`.
            train: the training files (those that exist) or the test file.
            label: `fine`, or `coarse` for the 20 groups of CIFAR-100.
        """
        layout = _choose(LAYOUTS, name, "the CIFAR version")
        wanted = _choose(layout.labels, label, f"the label of {name}")
        folder = _folder(Path(root), layout) or Path(root)
        files = layout.train if train else layout.test
        present = [folder / file for file in files if is_regular(folder / file)]
        if not present:
            raise MissingDataError(f"no {files[0]} in {root}; {_advice(Path(root), layout)}")
        missing = [file for file in files if folder / file not in present]
        if missing:
            log.warning("%s: training without the missing %s", folder, ", ".join(missing))

        records = [_records(path, layout, wanted) for path in present]
        self.class_names = _class_names(folder, wanted)
        self.labels = np.concatenate([record[:, wanted.byte] for record in records]).astype(np.int32)
        counts = [len(record) for record in records]
        self.names = [f"{path.name}#{i}" for path, count in zip(present, counts) for i in range(count)]
        self._records = records
        self._starts = np.cumsum([0, *counts])

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        """Return one image, 32 x 32 RGB."""
        file = np.searchsorted(self._starts, index, side="right") - 1
        pixels = self._records[file][index - self._starts[file], -PIXELS:]
        return Image.fromarray(pixels.reshape(3, SIDE, SIDE).transpose(1, 2, 0).copy())

    def typical_size(self) -> tuple[int, int]:
        """Return (height, width), the same for all images."""
        return SIDE, SIDE


def detect_format(root: str | os.PathLike[str]) -> str:
    """Return `cifar10`, `cifar100` or `imagefolder`. A pickled CIFAR counts: `Cifar` then says what to do."""
    root = Path(root)
    try:
        if not stat.S_ISDIR(root.stat().st_mode):
            raise UserError(f"the data folder {root} is not a folder")
    except FileNotFoundError:
        raise UserError(f"the data folder {root} does not exist") from None
    except OSError as error:
        raise UserError(f"cannot read the data folder {root}: {error.strerror}") from None
    for name, layout in LAYOUTS.items():
        if _folder(root, layout) or _pickled(root, layout):
            return name
    return "imagefolder"


def _folder(root: Path, layout: Layout) -> Path | None:
    for folder in (root, root / layout.folder):
        if any(is_regular(folder / file) for file in layout.train + layout.test):
            return folder
    return None


def _pickled(root: Path, layout: Layout) -> Path | None:
    """Return a file of the pickled version: the same names without `.bin`."""
    stems = [Path(file).stem for file in layout.train + layout.test]
    paths = [folder / stem for folder in (root, root / layout.pickled_folder) for stem in stems]
    return next(filter(is_regular, paths), None)


def _advice(root: Path, layout: Layout) -> str:
    pickled = _pickled(root, layout)
    found = f"found the pickled version ({pickled}), but " if pickled else ""
    return (
        f"{found}the binary version is wanted: download https://www.cs.toronto.edu/~kriz/{layout.archive} "
        f"and unpack it there"
    )


def _records(path: Path, layout: Layout, label: Label) -> np.ndarray:
    """Map a file into memory, uint8 of shape (records, bytes of a record)."""
    length = layout.label_bytes + PIXELS
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size == 0 or size % length:
                raise UserError(
                    f"{path} has {size} bytes, expected a multiple of {length}; download it again"
                )
            records = np.memmap(stream, np.uint8, "r", shape=(size // length, length))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; download it again") from None
    wrong = np.flatnonzero(records[:, label.byte] >= label.count)
    if wrong.size:
        raise UserError(
            f"{path}: record {wrong[0]} has label {records[wrong[0], label.byte]}, "
            f"expected less than {label.count}; download it again"
        )
    return records


def _class_names(folder: Path, label: Label) -> tuple[str, ...]:
    path = folder / label.names_file
    try:
        text = read_bytes(path, MAX_NAMES_BYTES).decode(errors="replace")
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("%s is not used: %s", path, error.strerror)
    else:
        names = tuple(line.strip() for line in text.splitlines() if line.strip())
        if len(set(names)) == len(names) == label.count:
            return names
        log.warning("%s is not used: %d names, expected %d different ones", path, len(names), label.count)
    if label.count == len(CIFAR10_NAMES):
        return CIFAR10_NAMES
    return tuple(f"class_{i:02d}" for i in range(label.count))


def _choose(table: dict, key: str, what: str):
    if key not in table:
        raise UserError(f"{what} must be {' or '.join(table)}, not {key!r}")
    return table[key]
