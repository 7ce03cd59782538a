"""Resized training images, kept in a file from which later passes and runs read them.

Where all images are resized to one size, which is BiT's recipe, decoding and resizing give the same pixels in
each pass. The file holds them as they are, so that nothing that is learnt changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, features

from src.errors import UserError
from src.image_folder import ImageFolder

log = logging.getLogger(__name__)


VERSION = 1  # of what the files hold; a change of how training images are decoded or resized counts, too
DECODERS = ("jpg", "libjpeg_turbo", "zlib", "webp", "libtiff")  # Pillow's, whose versions may change pixels


class ImageCache:
    """An image folder whose images are resized, and decoded at most once a machine.

    Ranks and runs may share it at once: a row counts when its checksum is there and right, and all write the
    same.

    Attributes:
        names: as of `ImageFolder`.
        labels: likewise.
    """

    def __init__(
        self,
        samples: ImageFolder,
        folder: Path,
        *,
        size: tuple[int, int],
        resize: Callable[[Image.Image], np.ndarray],
        how: object,
    ):
        """Open the files of these images, or begin them.

        Args:
            samples: the image folder.
            folder: holds a folder of these images, and those of others.
            size: (height, width) of the resized images.
            resize: gives uint8 pixels (*size, 3) of an image.
            how: whatever else shapes the pixels; its `repr` becomes part of the folder's name.

        Raises:
            UserError: the files do not fit onto the disk, cannot be written, or would lie among the images.
        """
        self.names, self.labels = samples.names, samples.labels
        self._samples, self._resize = samples, resize
        folder, root = Path(folder).resolve(), samples.root.resolve()
        if root == folder or root in folder.parents:
            raise UserError(f"image_cache {folder} lies in the images' folder {root}; choose one outside")
        decoders = [features.version(name) for name in DECODERS]
        facts = (VERSION, size, how, PIL.__version__, decoders, str(root))
        key = hashlib.sha256(repr(facts).encode())
        for name in samples.names:
            key.update(f"{name}\0{_state(root / name)}\0".encode())
        path = folder / f"{size[0]}x{size[1]}-{key.hexdigest()[:16]}"
        shape = (len(samples), *size, 3)
        try:
            sizes = {"checksums": 4 * shape[0], "pixels": int(np.prod(shape, dtype=np.int64))}
            _check_room(path, sizes)
            path.mkdir(parents=True, exist_ok=True)
            with (path / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # other ranks wait for the one that makes the files
                _take_room(path, sizes)
                self._sums = np.memmap(path / "checksums", "<u4", "r+", shape=shape[:1])
                self._pixels = np.memmap(path / "pixels", np.uint8, "r+", shape=shape)
        except OSError as error:
            raise UserError(f"image_cache cannot be kept in {folder}: {error.strerror or error}") from None
        cached, others = np.count_nonzero(self._sums), sum(other.is_dir() for other in folder.iterdir()) - 1
        log.info("image_cache: %d of %d images are in %s", cached, len(samples), path)
        if others:
            log.info(
                "image_cache: %s holds %d older or other sets; remove what you need no more", folder, others
            )

    def __len__(self) -> int:
        return len(self.names)

    def image(self, index: int) -> Image.Image:
        """Return a resized image. Raises `BadImageError`."""
        pixels = np.array(self._pixels[index])
        if _checksum(pixels) != self._sums[index]:
            pixels = self._resize(self._samples.image(index))
            self._pixels[index] = pixels
            self._sums[index] = _checksum(pixels)
        return Image.fromarray(pixels)


def _state(path: Path) -> str:
    try:
        state = path.stat()
    except OSError:
        return ""
    return f"{state.st_size} {state.st_mtime_ns}"


def _checksum(pixels: np.ndarray) -> int:
    """Never 0, which stands for no image."""
    return zlib.crc32(pixels) or 1


def _lengths(folder: Path, names: Iterable[str]) -> dict[str, int]:
    paths = {name: folder / name for name in names}
    return {name: path.stat().st_size if path.exists() else 0 for name, path in paths.items()}


def _check_room(folder: Path, sizes: Mapping[str, int]) -> None:
    """Raise `UserError` if files of these bytes do not fit onto the disk."""
    found = _lengths(folder, sizes)
    missing = sum(max(0, size - found[name]) for name, size in sizes.items())
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if missing > free:
        raise UserError(
            f"image_cache needs {missing / 1e6:,.1f} MB in {folder.parent}, and {free / 1e6:,.1f} are free; "
            "make room, or leave it empty"
        )


def _take_room(folder: Path, sizes: Mapping[str, int]) -> None:
    """Make files of zeros where they are missing; their room on the disk is taken now."""
    found = _lengths(folder, sizes)
    if found["pixels"] != sizes["pixels"] and found["checksums"]:
        (folder / "checksums").unlink()  # of pixels that were lost
        found["checksums"] = 0
    for name, size in sizes.items():
        if found[name] != size:
            with (folder / name).open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a mapped page without room ends the process
                os.truncate(file.fileno(), size)
