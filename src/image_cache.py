"""Resized training images, kept in a file from which later passes and runs read them.

Where all images are resized to one size, which is BiT's recipe, decoding and resizing give the same pixels in
each pass. The file holds them as they are, so that nothing that is learnt changes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from src.errors import UserError
from src.image_folder import ImageFolder

log = logging.getLogger(__name__)


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
        """Open the file of these images, or begin it.

        Args:
            samples: the image folder.
            folder: where the file goes; several files may share it.
            size: (height, width) of the resized images.
            resize: gives uint8 pixels (*size, 3) of an image.
            how: whatever else shapes the pixels; its `repr` becomes part of the file's name.

        Raises:
            UserError: the file does not fit onto the disk, or cannot be written.
        """
        self.names, self.labels = samples.names, samples.labels
        self._samples, self._resize = samples, resize
        key = hashlib.sha256(repr((size, how)).encode())
        for name in samples.names:
            key.update(f"{name}\0{_state(samples.root / name)}\0".encode())
        path = Path(folder) / f"{size[0]}x{size[1]}-{key.hexdigest()[:16]}"
        shape = (len(samples), *size, 3)
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._sums = _open(path / "checksums", np.dtype("<u4"), shape[:1])
            self._pixels = _open(path / "pixels", np.dtype(np.uint8), shape)
        except OSError as error:
            raise UserError(f"image_cache cannot be kept in {folder}: {error.strerror or error}") from None
        cached = np.count_nonzero(self._sums)
        log.info("image_cache: %d of %d images are in %s", cached, len(samples), path)

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


def _open(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.memmap:
    """Map a file of zeros, or what others have written there; its room on the disk is taken at once."""
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    with path.open("ab") as file:
        missing = size - file.tell()
        free = shutil.disk_usage(path.parent).free
        if missing > free:
            raise UserError(
                f"image_cache needs {missing / 1e9:.1f} GB in {path.parent}, and {free / 1e9:.1f} are free; "
                "make room, or leave it empty"
            )
        if missing:
            os.posix_fallocate(file.fileno(), 0, size)  # a mapped page that has no room ends the process
    return np.memmap(path, dtype, "r+", shape=shape)
