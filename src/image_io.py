"""Decode any image file to RGB, or say which file is broken and why.

Pillow decodes, because it reports a damaged file as an exception and its resize is the one of published
accuracies. EXIF orientation is ignored, as in the published input pipelines.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Union

import numpy as np
from PIL import Image, UnidentifiedImageError

from src.errors import UserError
from src.user_files import open_regular

EXTENSIONS = (
    ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo",
    ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp",
)  # fmt: skip
MAX_SIDE = 65_535  # of a JPEG; resizing an image of 1 x 89 million pixels would take 80 GB
JPEG_START = b"\xff\xd8"
MAX_JPEG_BYTES = 2**28  # of a file that is read at once
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # an MPO is a JPEG to Pillow

Source = Union[str, "os.PathLike[str]", bytes]


class BadImageError(UserError):
    """One image file cannot be read. The text names the file and the reason."""


def decode_image(source: Source) -> Image.Image:
    """Decode an image file, whatever its extension says, to an RGB image.

    Alpha is dropped, CMYK is converted, of an animation the first frame is taken. Grey images of 16 bits keep
    their high byte, as Pillow does with 16-bit colour.

    Args:
        source: path of the file, or its content.

    Raises:
        BadImageError: the file is missing, truncated, too large to be honest, or no image of a known format.
    """
    with opened(source) as image:
        return to_rgb(image)


def image_size(source: Source) -> tuple[int, int]:
    """Return (height, width) from the header. Raises `BadImageError` like `decode_image`."""
    with opened(source) as image:
        return image.height, image.width


def read_jpeg(source: Source) -> bytes | None:
    """Return what a file holds that begins as a JPEG does and is no giant. Raises `BadImageError`."""
    if isinstance(source, bytes):
        return source if source.startswith(JPEG_START) else None
    with _named(source), open_regular(source) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_JPEG_BYTES or file.read(len(JPEG_START)) != JPEG_START:
            return None
        return JPEG_START + file.read(max(0, size - len(JPEG_START)))


@contextmanager
def opened(source: Source, content: bytes | None = None) -> Iterator[Image.Image]:
    """Open an image; whatever goes wrong in the body of `with` becomes a `BadImageError`.

    Args:
        source: as of `decode_image`.
        content: what the file holds, if it has been read.
    """
    if content is None and isinstance(source, bytes):
        content = source
    with _named(source):
        if content is not None:
            file, size = io.BytesIO(content), len(content)
        else:
            file = open_regular(source)
            size = os.fstat(file.fileno()).st_size
        with file:
            if size == 0:
                raise ValueError("the file is empty")
            with Image.open(file, formats=FORMATS) as image:
                if not 1 <= min(image.size) <= max(image.size) <= MAX_SIDE:
                    width, height = image.size
                    raise ValueError(
                        f"its {width} x {height} pixels are none, or more than {MAX_SIDE} in a row"
                    )
                yield image


@contextmanager
def _named(source: Source) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # on damaged data Pillow raises any type, from struct.error to KeyError
        name = f"of {len(source)} bytes" if isinstance(source, bytes) else os.fspath(source)
        raise BadImageError(f"cannot read image {name}: {_reason(error)}; repair or remove it") from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"it is none of {', '.join(FORMATS)}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, (OSError, ValueError, SyntaxError, Image.DecompressionBombError)) and str(error):
        return " ".join(str(error).split())
    return repr(error)


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an opened image as RGB. Raises any exception, see `opened`."""
    if image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range, save it with 8 bits")
    if image.mode == "I" and image.format not in ("PNG", "PPM"):  # theirs holds 16 bits
        raise ValueError("its pixels have 32 bits and no fixed range, save it with 8 bits")
    if image.mode.startswith("I"):  # convert("RGB") would clip everything above 255
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise ValueError("its pixels have more than 16 bits, save it with 8 bits")
        image = Image.fromarray((values >> 8).astype(np.uint8))
    image.load()
    if image.format == "JPEG" and image.mode == "RGB":
        return image  # saves a copy
    image.info.pop("transparency", None)  # convert() would warn about it
    return image.convert("RGB")
