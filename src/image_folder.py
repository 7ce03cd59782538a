"""A data set as a folder of class folders, and the choice of the training and evaluation folders.

Labels are the positions of the class folders in plain string order (or those of a given class map); hidden
and system folders never become classes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable

import numpy as np
from PIL import Image

from src.class_map import check_class_order
from src.errors import MissingDataError, UserError
from src.image_io import EXTENSIONS, BadImageError, decode_image, image_size
from src.photo import Photo

log = logging.getLogger(__name__)

SYSTEM_FOLDERS = frozenset(
    ("__MACOSX", "__pycache__", "@eaDir", "#recycle", "#snapshot", "$RECYCLE.BIN", "lost+found",
     "System Volume Information")
)  # fmt: skip
TRAIN_SPLITS = ("train", "training")
EVAL_SPLITS = ("val", "valid", "validation", "test", "testing")
SIZE_SAMPLES = 100


class ImageFolder:
    """The images of a folder of class folders, in plain string order of class and path.

    Attributes:
        class_names: names in the order of the labels.
        labels: int32, shape (N,).
        names: paths relative to the root, with `/`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        class_names: Sequence[str] | None = None,
        read: Callable[[Path], Image.Image | Photo] = decode_image,
    ):
        """List the images.

        Args:
            root: folder that holds one folder for each class; nested folders and links in them are followed.
            class_names: the classes of a checkpoint. Labels then follow them, and a class without images is
                only a warning. Without it every class folder must hold an image.
            read: how a file becomes an image.
        """
        self.root, self._read = Path(root), read
        folders = _class_folders(self.root)
        self.class_names = tuple(folders if class_names is None else class_names)
        label_of = {name: label for label, name in enumerate(self.class_names)}
        if not label_of.keys() >= set(folders):
            check_class_order(self.class_names, folders)

        self.names: list[str] = []
        labels: list[int] = []
        ignored: list[str] = []
        for folder in folders:
            found = sorted(_images(self.root, folder, ignored))
            self.names += found
            labels += [label_of[folder]] * len(found)
        self.labels = np.array(labels, np.int32)

        if ignored:
            log.info("%s: ignored %d files that are no images, such as %s", root, len(ignored), ignored[0])
        if not self.names:
            known = " ".join(EXTENSIONS)
            raise UserError(f"no images in the class folders of {root}; known extensions: {known}")
        counts = np.bincount(self.labels, minlength=len(self.class_names))
        empty = [name for name, count in zip(self.class_names, counts) if not count]
        if empty and class_names is None:
            folder = self.root / empty[0]
            raise UserError(f"class folder {folder} holds no images ({len(empty)} such); fill or remove it")
        if empty:
            log.warning("%s: %d classes have no images, such as %s", root, len(empty), empty[0])

    def __len__(self) -> int:
        return len(self.names)

    def image(self, index: int) -> Image.Image | Photo:
        """Return one image, by default decoded to RGB. Raises `BadImageError`."""
        return self._read(self.root / self.names[index])

    def typical_size(self) -> tuple[int, int]:
        """Median height and width of up to 100 evenly spread images, from their headers."""
        spread = np.unique(np.linspace(0, len(self) - 1, SIZE_SAMPLES).astype(int))
        sizes = [size for size in (self._size(index) for index in spread) if size]
        if not sizes:
            raise UserError(f"{self.root}: none of {len(spread)} images can be read, such as {self.names[0]}")
        height, width = np.median(sizes, axis=0)
        return int(height), int(width)

    def _size(self, index: int) -> tuple[int, int] | None:
        try:
            return image_size(self.root / self.names[index])
        except BadImageError:
            return None


def train_folder(dataset_path: str | os.PathLike[str]) -> Path:
    """Return the folder of training classes: `dataset_path/train` if that is a split, else `dataset_path`."""
    return _split(Path(dataset_path), TRAIN_SPLITS) or Path(dataset_path)


def eval_folder(dataset_path: str | os.PathLike[str], eval_path: str | os.PathLike[str] | None) -> Path:
    """Return the folder of evaluation classes.

    It is `eval_path` (or the split in it) if given, else val/, validation/ or test/ in `dataset_path` or,
    when that is itself a folder `train`, beside it.
    """
    if eval_path:
        return _split(Path(eval_path), EVAL_SPLITS) or Path(eval_path)
    root = Path(dataset_path)
    found = _split(root, EVAL_SPLITS)
    if found is None and root.absolute().name in TRAIN_SPLITS:
        found = _split(root.absolute().parent, EVAL_SPLITS)
    if found is None:
        wanted = "/, ".join(EVAL_SPLITS)
        raise MissingDataError(f"no folder {wanted}/ with class folders in {root}; set eval_path")
    return found


def _split(root: Path, names: Sequence[str]) -> Path | None:
    """Return the first subfolder of `names` that is a split and not a class that happens to be called so."""
    subfolders, _ = _list(root)
    only_splits = set(subfolders) <= {*TRAIN_SPLITS, *EVAL_SPLITS}
    for name in names:
        if name in subfolders:
            inner, files = _list(root / name)
            if only_splits or (inner and not any(map(_is_image, files))):
                return root / name
    return None


def _class_folders(root: Path) -> list[str]:
    folders, files = _list(root)
    if not folders and any(map(_is_image, files)):
        raise UserError(f"images lie directly in {root}; put them into one folder for each class")
    if not folders:
        raise UserError(f"{root} holds no class folders; expected {root}/<class name>/<image>")
    return folders


def _images(root: Path, folder: str, ignored: list[str]) -> Iterator[str]:
    """Yield the images below `root/folder`; each real folder is entered once, so links cannot loop."""
    entered = {root.resolve()}
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        real = (root / current).resolve()
        if real in entered:
            continue
        entered.add(real)
        folders, files = _list(root / current)
        waiting += [f"{current}/{name}" for name in folders]
        for name in files:
            if _is_image(name):
                yield f"{current}/{name}"
            else:
                ignored.append(f"{current}/{name}")


def _list(root: Path) -> tuple[list[str], list[str]]:
    """Return the sorted names of the visible subfolders and of everything that is no folder."""
    folders, files = [], []
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                if not entry.is_dir():
                    files.append(entry.name)
                elif not entry.name.startswith(".") and entry.name not in SYSTEM_FOLDERS:
                    folders.append(entry.name)
    except OSError as error:
        raise UserError(f"cannot list the data folder {root}: {error.strerror}") from error
    return sorted(folders), sorted(files)


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in EXTENSIONS  # noqa: PTH122, called for every file
