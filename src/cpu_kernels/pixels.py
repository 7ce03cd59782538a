"""The compiled operators of the input pipeline, which compute what `src/pixels.py` does, to the bit.

`ctypes` lets go of Python's lock while they compute, so that the threads of a loader do not wait for each
other. MindSpore has no part in this: the pipeline has them for every kind of device.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence

import numpy as np
import PIL
from PIL import Image

from src.cpu_kernels import build
from src.pixels import PLAIN, Box, Pixels

log = logging.getLogger(__name__)

FILTERS = {"BILINEAR": 0, "BICUBIC": 1}
STEPS = (3, 4, -3, -4)  # bytes from a pixel to the next that `normalise` knows
TALL = 100  # times as high as wide: from Pillow 12.2 on such images are filtered along columns first
STORED = 4  # bytes of a pixel in Pillow's memory: red, green, blue, unused


def get_pixels(wanted: bool) -> Pixels:
    """Return the compiled operators, or those of Pillow and NumPy, and say in the log why."""
    if not wanted:
        return PLAIN
    try:
        compiled = CompiledPixels(build.load(build.library()))
    except build.BuildError as error:
        build.tell(error)
        return PLAIN
    if not compiled.agrees_with_pillow():
        log.info("cpu_kernels: Pillow %s and NumPy prepare the images: its pixels differ", PIL.__version__)
        return PLAIN
    return compiled


class CompiledPixels(Pixels):
    """The functions of the built library; what they cannot do is left to `Pixels`."""

    def __init__(self, library: ctypes.CDLL):
        address, number = ctypes.c_void_p, ctypes.c_int
        self._resample, self._normalise = library.resample, library.normalise
        part = ctypes.POINTER(ctypes.c_float)
        self._resample.argtypes = [address, number, number, part, number, number, number, address]
        strides = [ctypes.c_int64, ctypes.c_int64]
        self._normalise.argtypes = [address, number, number, *strides, address, address, address]

    def resize(
        self, image: Image.Image, size: tuple[int, int], interpolation: str, box: Box | None = None
    ) -> np.ndarray:
        """As `Pixels.resize`."""
        width, height = image.size
        left, top, right, bottom = box = box or (0, 0, width, height)
        known = interpolation in FILTERS and width > 1 and height <= TALL * width and min(size) > 0
        inside = 0 <= left < right <= width and 0 <= top < bottom <= height
        pixels = _memory_of(image) if known and inside else None
        if pixels is None:
            return super().resize(image, size, interpolation, box)
        result = np.empty((*size, 3), np.uint8)
        part, kind = (ctypes.c_float * 4)(*box), FILTERS[interpolation]
        if self._resample(pixels.ctypes.data, height, width, part, kind, *size, result.ctypes.data):
            raise MemoryError(f"no memory to resize an image of {width} x {height} pixels")
        return result

    def array(self, image: Image.Image) -> np.ndarray:
        """As `Pixels.array`, without a copy."""
        pixels = _memory_of(image)
        return super().array(image) if pixels is None else pixels[:, :, :3]

    def normalise(
        self,
        pixels: np.ndarray,
        mean: Sequence[float],
        std: Sequence[float],
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """As `Pixels.normalise`."""
        if pixels.ndim != 3 or pixels.dtype != np.uint8 or pixels.shape[2] != 3:
            return super().normalise(pixels, mean, std, out)
        height, width, _ = shape = pixels.shape
        result = np.empty((3, height, width), np.float32) if out is None else out
        fits = result.shape == (3, height, width) and result.dtype == np.float32 and result.flags.c_contiguous
        statistics = [np.array(values, np.float32) for values in (mean, std)]
        known = pixels.strides[1] in STEPS and pixels.strides[2] == 1 and statistics[0].shape == (3,)
        if not fits or not known or statistics[1].shape != (3,) or 0 in shape:
            return super().normalise(pixels, mean, std, out)
        addresses = [array.ctypes.data for array in (*statistics, result)]
        self._normalise(pixels.ctypes.data, height, width, *pixels.strides[:2], *addresses)
        return result

    def agrees_with_pillow(self) -> bool:
        """Whether this Pillow does as the pinned one; 13 changed the order in which it filters."""
        image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (97, 31, 3), np.uint8))
        boxes = (None, (1, 2.5, 30, 90))
        cases = [(size, name, box) for size in ((5, 29), (40, 50)) for name in FILTERS for box in boxes]
        return np.array_equal(self.array(image), PLAIN.array(image)) and all(
            np.array_equal(self.resize(image, *case), PLAIN.resize(image, *case)) for case in cases
        )


class _Memory:
    """Lets NumPy look at the pixels of an image, which live as long as `owners`."""

    def __init__(self, address: int, shape: tuple[int, ...], owners):
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": shape, "data": (address, True)}
        self.owners = owners


class _ArrowArray(ctypes.Structure):
    """https://arrow.apache.org/docs/format/CDataInterface.html"""


_ArrowArray._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowArray))),
    *((name, ctypes.c_void_p) for name in ("dictionary", "release", "private_data")),
]
_content = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _memory_of(image: Image.Image) -> np.ndarray | None:
    """The memory of an RGB image, uint8 (height, width, 4), read-only; None if it is not in one piece."""
    if image.mode != "RGB":
        return None
    try:
        schema, array = image.__arrow_c_array__()
    except (AttributeError, ValueError):  # an older Pillow, or more pixels than one block of its memory has
        return None
    pixels = _ArrowArray.from_address(_content(array, b"arrow_array")).children[0].contents
    owners = (image, schema, array)
    return np.asarray(_Memory(pixels.buffers[1], (image.height, image.width, STORED), owners))
