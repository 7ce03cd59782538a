"""From a decoded image to pixels of the network's size, and from pixels to normalised input.

BiT's recipe (big_transfer, bit_pytorch/train.py): training resizes to a square, crops at random and flips;
evaluation resizes straight to the crop. The usual recipe of ImageNet: training takes a random part of the
image ("Inception crop"), evaluation the centre.

Sizes are (height, width) in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Union

import numpy as np
from PIL import Image

from src.errors import UserError
from src.photo import Photo
from src.pixels import INTERPOLATIONS, PLAIN, Box, Pixels

MIN_STD = 1e-6  # of pixels 0..255; what is divided by less can exceed float32
TRIES = 10  # draws of a box before giving up, as in TensorFlow, torchvision and timm
MIN_RATIO = 0.05  # of `CentreCrop`: the smaller, the larger is the image of which the centre is shown
LONGEST = 50  # aspect ratio above which `CentreCrop` first cuts off what it never shows

Source = Union[Image.Image, Photo]
Augment = Callable[[Image.Image, np.random.Generator], Image.Image]  # keeps the size


class Transform(Protocol):
    """What the loader calls for each image, in several threads; `crop` is the result's (height, width)."""

    crop: tuple[int, int]

    def __call__(self, image: Image.Image, rng: np.random.Generator | None) -> np.ndarray:
        """Return uint8 pixels (height, width, 3). Evaluation has no `rng`: its transforms draw nothing."""


@dataclass(frozen=True)
class RandomCrop:
    """Resize to `resize`, without regard to the aspect ratio, and crop `crop` at a random place."""

    resize: tuple[int, int]
    crop: tuple[int, int]
    interpolation: str = "BILINEAR"
    pixels: Pixels = PLAIN

    def __post_init__(self):
        _check_interpolation(self.interpolation)
        if self.crop[0] > self.resize[0] or self.crop[1] > self.resize[1]:
            raise UserError(
                f"the crop {self.crop} (train_image_size) is larger than the resized image {self.resize} "
                "(train_resize_size)"
            )

    def __call__(self, image: Source, rng: np.random.Generator) -> np.ndarray:
        """Return a view of uint8 pixels (h, w, 3)."""
        pixels = self.resized(image)
        (height, width), crop = self.resize, self.crop
        top = rng.integers(height - crop[0] + 1)
        left = rng.integers(width - crop[1] + 1)
        return pixels[top : top + crop[0], left : left + crop[1]]

    def resized(self, image: Source) -> np.ndarray:
        """Return the image before the crop, which is the same in each pass; uint8 (*resize, 3)."""
        return _resize(self, image, self.resize)


@dataclass(frozen=True)
class RandomResizedCrop:
    """Resize a random part of the image to `crop` (Inception crop, arXiv:1409.4842).

    The part has a share of the area that is uniform in `crop_min`..1 and an aspect ratio whose logarithm is
    uniform between those of 3/4 and 4/3. If none fits in ten tries it is the largest centre part with an
    aspect ratio in that range, as in torchvision. The filter also sees pixels beside the part.
    """

    crop: tuple[int, int]
    crop_min: float
    interpolation: str = "BILINEAR"
    pixels: Pixels = PLAIN

    def __post_init__(self):
        _check_interpolation(self.interpolation)
        if not 0 < self.crop_min <= 1:
            raise UserError(f"crop_min, a share of the area, is above 0 and at most 1, not {self.crop_min}")

    def __call__(self, image: Source, rng: np.random.Generator) -> np.ndarray:
        """Return uint8 pixels (h, w, 3)."""
        return _resize(self, image, self.crop, self._box(image.width, image.height, rng))

    def _box(self, width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        for _ in range(TRIES):
            area = width * height * rng.uniform(self.crop_min, 1)
            part_width, part_height = _sides(area, math.log(4 / 3), rng)
            if 0 < part_width <= width and 0 < part_height <= height:
                top = int(rng.integers(height - part_height + 1))
                left = int(rng.integers(width - part_width + 1))
                break
        else:
            part_width, part_height = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
            top, left = (height - part_height) // 2, (width - part_width) // 2
        return left, top, left + part_width, top + part_height


@dataclass(frozen=True)
class RandomErasing:
    """Fill a random rectangle with noise, with the given probability (arXiv:1708.04896).

    As in DeiT (timm's `pixel` mode): an area of 0.02..1/3 of the image, an aspect ratio of 0.3..1/0.3 with a
    uniform logarithm, normal noise of the data set's mean and deviation (of red, green and blue, 0..255) for
    each value, rounded and cut off at 0 and 255, where timm's is not. An image in which no such rectangle
    fits in ten tries stays as it is.
    """

    probability: float
    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self):
        check_statistics(self.mean, self.std)
        if not 0 <= self.probability <= 1:
            raise UserError(f"the probability of random_erasing is from 0 to 1, not {self.probability}")

    def __call__(self, pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return `pixels`, uint8 of shape (h, w, 3), or a copy with the rectangle."""
        if rng.random() >= self.probability:
            return pixels
        height, width = pixels.shape[:2]
        for _ in range(TRIES):
            area = width * height * rng.uniform(0.02, 1 / 3)
            part_width, part_height = _sides(area, math.log(1 / 0.3), rng)
            if 0 < part_width < width and 0 < part_height < height:
                top = rng.integers(height - part_height + 1)
                left = rng.integers(width - part_width + 1)
                noise = rng.standard_normal((part_height, part_width, 3), np.float32)
                noise = noise * np.float32(self.std) + np.float32(self.mean)
                pixels = pixels.copy()
                pixels[top : top + part_height, left : left + part_width] = noise.round().clip(0, 255)
                break
        return pixels


@dataclass(frozen=True)
class TrainTransform:
    """Geometry, then a flip with probability `hflip`, then `augment`, then `erasing`."""

    geometry: RandomCrop | RandomResizedCrop
    hflip: float = 0.5
    augment: Augment | None = None
    erasing: RandomErasing | None = None

    @property
    def crop(self) -> tuple[int, int]:
        """The (height, width) of the result."""
        return self.geometry.crop

    def __call__(self, image: Source, rng: np.random.Generator) -> np.ndarray:
        """Return uint8 pixels (h, w, 3), maybe a view or read-only."""
        pixels = self.geometry(image, rng)
        flips = rng.random() < self.hflip
        if self.augment is not None:
            shown = Image.fromarray(pixels)
            shown = shown.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flips else shown
            pixels = self.geometry.pixels.array(self.augment(shown, rng))
        elif flips:
            pixels = pixels[:, ::-1]
        return pixels if self.erasing is None else self.erasing(pixels, rng)


@dataclass(frozen=True)
class Resize:
    """Resize straight to `crop`, without regard to the aspect ratio."""

    crop: tuple[int, int]
    interpolation: str = "BILINEAR"
    pixels: Pixels = PLAIN

    def __post_init__(self):
        _check_interpolation(self.interpolation)

    def __call__(self, image: Source, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return uint8 pixels (h, w, 3)."""
        return _resize(self, image, self.crop)


@dataclass(frozen=True)
class CentreCrop:
    """Resize, keeping the aspect ratio, so that `crop` is `ratio` of what it can be, and crop the centre.

    The image just covers floor(crop / ratio) in both axes. For a square crop this is torchvision's
    `Resize(floor(size / ratio))` and `CenterCrop(size)`, to the pixel; but of an image more than 50 times as
    long as wide, which would take up to gigabytes, the ends are cut off first.
    """

    crop: tuple[int, int]
    ratio: float
    interpolation: str = "BILINEAR"
    pixels: Pixels = PLAIN

    def __post_init__(self):
        _check_interpolation(self.interpolation)
        if not MIN_RATIO <= self.ratio <= 1:
            raise UserError(f"eval_crop_ratio is 0 or from {MIN_RATIO} to 1, not {self.ratio}")

    def __call__(self, image: Image.Image, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return uint8 pixels (h, w, 3)."""
        shortest = min(image.size)
        if max(image.size) > LONGEST * shortest:
            width, height = (min(side, LONGEST * shortest) for side in image.size)
            image = image.crop(_centre_box(*image.size, width, height))
        height, width = (int(side / self.ratio) for side in self.crop)
        if height * image.width >= width * image.height:
            width = int(height * image.width / image.height)
        else:
            height = int(width * image.height / image.width)
        left, top, right, bottom = _centre_box(width, height, self.crop[1], self.crop[0])
        return self.pixels.resize(image, (height, width), self.interpolation)[top:bottom, left:right]


def check_statistics(mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise `UserError` unless `Pixels.normalise` can use these values."""
    if len(mean) != 3 or len(std) != 3 or min(std) < MIN_STD:
        raise UserError(
            f"mean and std must be three values, std positive, from {MIN_STD} up, "
            f"not {list(mean)} and {list(std)}"
        )


def _resize(how, image: Source, size: tuple[int, int], box: Box | None = None) -> np.ndarray:
    if isinstance(image, Photo):
        image, box = image.part(size, box)
    if box is None and image.size == size[::-1]:
        return how.pixels.array(image)
    return how.pixels.resize(image, size, how.interpolation, box)


def _sides(area: float, log_ratio: float, rng: np.random.Generator) -> tuple[int, int]:
    """Return (width, height) of a rectangle, the logarithm of its ratio uniform between -+`log_ratio`."""
    ratio = math.exp(rng.uniform(-log_ratio, log_ratio))
    return round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))


def _centre_box(width: int, height: int, part_width: int, part_height: int) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) of the centre part; halves are rounded as torchvision does."""
    left, top = round((width - part_width) / 2), round((height - part_height) / 2)
    return left, top, left + part_width, top + part_height


def _check_interpolation(name: str) -> None:
    if name not in INTERPOLATIONS:
        raise UserError(f"interpolation must be one of {', '.join(INTERPOLATIONS)}, not {name!r}")
