"""The operators between a decoded image and the network's input, by Pillow and NumPy.

Resizing is Pillow's, which averages over the source pixels when it shrinks; TensorFlow's without
antialiasing, which Google's JAX and TF2 code uses, does not. `src/cpu_kernels/pixels.py` computes the same,
faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

INTERPOLATIONS = {
    "NEAREST": Image.Resampling.NEAREST,
    "BILINEAR": Image.Resampling.BILINEAR,
    "BICUBIC": Image.Resampling.BICUBIC,
    "LANCZOS": Image.Resampling.LANCZOS,
}

Box = tuple[float, float, float, float]  # left, top, right, bottom


class Pixels:
    """The operators; sizes are (height, width) in pixels."""

    def resize(
        self, image: Image.Image, size: tuple[int, int], interpolation: str, box: Box | None = None
    ) -> np.ndarray:
        """Return a part of an RGB image, by default all of it, as uint8 of shape (*size, 3)."""
        return np.asarray(image.resize(size[::-1], INTERPOLATIONS[interpolation], box))

    def array(self, image: Image.Image) -> np.ndarray:
        """Return the pixels of an RGB image, uint8 of shape (height, width, 3), maybe read-only."""
        return np.asarray(image)

    def normalise(
        self,
        pixels: np.ndarray,
        mean: Sequence[float],
        std: Sequence[float],
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return `(pixels - mean) / std` in the layout of the network.

        Args:
            pixels: uint8, shape (..., H, W, 3).
            mean: of red, green and blue, in the range of the pixels; 127.5 with `std` 127.5 maps 0..255
                to -1..1.
            std: likewise, positive; see `transforms.check_statistics`.
            out: where the result goes, by default a new array.

        Returns:
            float32, shape (..., 3, H, W), contiguous.
        """
        if out is None:
            out = np.empty((*pixels.shape[:-3], 3, *pixels.shape[-3:-1]), np.float32)
        values = np.moveaxis(pixels.astype(np.float32), -1, -3)  # (..., H, W, 3) -> (..., 3, H, W)
        np.subtract(values, np.array(mean, np.float32).reshape(3, 1, 1), out=out)
        out /= np.array(std, np.float32).reshape(3, 1, 1)
        return out


PLAIN = Pixels()
