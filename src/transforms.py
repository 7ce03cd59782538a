"""From a decoded image to pixels of the network's size, and from pixels to normalised input.

BiT's recipe (big_transfer, bit_pytorch/train.py): training resizes to a square, crops at random and flips;
evaluation resizes straight to the crop. Resizing is Pillow's, which averages over the source pixels when it
shrinks; TensorFlow's without antialiasing, which the JAX and TF2 code uses, does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

from src.errors import UserError

INTERPOLATIONS = {
    "NEAREST": Image.Resampling.NEAREST,
    "BILINEAR": Image.Resampling.BILINEAR,
    "BICUBIC": Image.Resampling.BICUBIC,
    "LANCZOS": Image.Resampling.LANCZOS,
}


class Transform(Protocol):
    """What the loader calls for each image, in several threads; `crop` is the result's (height, width)."""

    crop: tuple[int, int]

    def __call__(self, image: Image.Image, rng: np.random.Generator | None) -> np.ndarray:
        """Return uint8 pixels (height, width, 3). Evaluation has no `rng`: its transforms draw nothing."""


@dataclass(frozen=True)
class BitTrain:
    """Resize to `resize`, crop `crop` at a random place, flip with probability `hflip`; sizes are (h, w)."""

    resize: tuple[int, int]
    crop: tuple[int, int]
    hflip: float = 0.5
    interpolation: str = "BILINEAR"

    def __post_init__(self):
        _check_interpolation(self.interpolation)
        if self.crop[0] > self.resize[0] or self.crop[1] > self.resize[1]:
            raise UserError(
                f"the crop {self.crop} (train_image_size) is larger than the resized image {self.resize} "
                "(train_resize_size)"
            )

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> np.ndarray:
        """Return a view of uint8 pixels (h, w, 3)."""
        pixels = _resize(image, self.resize, self.interpolation)
        (height, width), crop = self.resize, self.crop
        top = rng.integers(height - crop[0] + 1)
        left = rng.integers(width - crop[1] + 1)
        pixels = pixels[top : top + crop[0], left : left + crop[1]]
        return pixels[:, ::-1] if rng.random() < self.hflip else pixels


@dataclass(frozen=True)
class BitEval:
    """Resize straight to `crop` (h, w), without regard to the aspect ratio."""

    crop: tuple[int, int]
    interpolation: str = "BILINEAR"

    def __post_init__(self):
        _check_interpolation(self.interpolation)

    def __call__(self, image: Image.Image, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return uint8 pixels (h, w, 3)."""
        return _resize(image, self.crop, self.interpolation)


def normalise(pixels: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """Return `(pixels - mean) / std` in the layout of the network.

    Args:
        pixels: uint8, shape (N, H, W, 3).
        mean: of red, green and blue, in the range of the pixels; 127.5 with `std` 127.5 maps 0..255 to -1..1.
        std: likewise, positive; see `check_statistics`.

    Returns:
        float32, shape (N, 3, H, W), contiguous.
    """
    scaled = np.empty((len(pixels), 3, *pixels.shape[1:3]), np.float32)
    channels_first = pixels.transpose(0, 3, 1, 2)  # (N, H, W, 3) -> (N, 3, H, W)
    np.subtract(channels_first, np.array(mean, np.float32).reshape(3, 1, 1), out=scaled)
    scaled /= np.array(std, np.float32).reshape(3, 1, 1)
    return scaled


def check_statistics(mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise `UserError` unless `normalise` can use these values."""
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise UserError(f"mean and std must be three values, std positive, not {list(mean)} and {list(std)}")


def _resize(image: Image.Image, size: tuple[int, int], interpolation: str) -> np.ndarray:
    return np.asarray(image.resize((size[1], size[0]), INTERPOLATIONS[interpolation]))


def _check_interpolation(name: str) -> None:
    if name not in INTERPOLATIONS:
        raise UserError(f"interpolation must be one of {', '.join(INTERPOLATIONS)}, not {name!r}")
