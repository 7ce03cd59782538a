"""AutoAugment (arXiv:1805.09501), RandAugment (arXiv:1909.13719) and TrivialAugment (arXiv:2103.10158).

Everything random is drawn from the generator that comes with the image, so that a run repeats exactly
whatever the number of threads. MindSpore's operations of these names draw from one global seed, and not
evenly (2.8.0: AutoContrast twice as often as the others, two of three magnitudes positive), so the operations
here are Pillow's, as in the papers' code: nearest-neighbour sampling, shears that keep the top left corner,
grey where the image does not reach. Every operation does more at a higher magnitude, as in torchvision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from src.errors import UserError

FILL = (128, 128, 128)


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=FILL)


OPERATIONS: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "Identity": lambda image, _: image,
    "AutoContrast": lambda image, _: ImageOps.autocontrast(image),
    "Equalize": lambda image, _: ImageOps.equalize(image),
    "Invert": lambda image, _: ImageOps.invert(image),
    "Posterize": lambda image, bits: ImageOps.posterize(image, 8 - round(bits)),  # bits that are dropped
    "Solarize": lambda image, values: ImageOps.solarize(image, 256 - values),  # values that are inverted
    "Brightness": lambda image, change: ImageEnhance.Brightness(image).enhance(1 + change),
    "Color": lambda image, change: ImageEnhance.Color(image).enhance(1 + change),
    "Contrast": lambda image, change: ImageEnhance.Contrast(image).enhance(1 + change),
    "Sharpness": lambda image, change: ImageEnhance.Sharpness(image).enhance(1 + change),
    "Rotate": lambda image, degrees: image.rotate(degrees, fillcolor=FILL),
    "ShearX": lambda image, slope: _affine(image, 1, slope, 0, 0, 1, 0),
    "ShearY": lambda image, slope: _affine(image, 1, 0, 0, slope, 1, 0),
    "TranslateX": lambda image, share: _affine(image, 1, 0, int(share * image.width), 0, 1, 0),
    "TranslateY": lambda image, share: _affine(image, 1, 0, 0, 0, 1, int(share * image.height)),
    "ShiftX": lambda image, number: _affine(image, 1, 0, int(number), 0, 1, 0),
    "ShiftY": lambda image, number: _affine(image, 1, 0, 0, 0, 1, int(number)),
}

# What each operation does at full strength. TrivialAugment's are the "wide" ones.
PAPER = {
    "Identity": 0, "AutoContrast": 0, "Equalize": 0, "Posterize": 4, "Solarize": 256, "Rotate": 30,
    "Brightness": 0.9, "Color": 0.9, "Contrast": 0.9, "Sharpness": 0.9,
    "ShearX": 0.3, "ShearY": 0.3, "TranslateX": 150 / 331, "TranslateY": 150 / 331,
}  # fmt: skip
WIDE = {
    "Identity": 0, "AutoContrast": 0, "Equalize": 0, "Posterize": 6, "Solarize": 256, "Rotate": 135,
    "Brightness": 0.99, "Color": 0.99, "Contrast": 0.99, "Sharpness": 0.99,
    "ShearX": 0.99, "ShearY": 0.99, "ShiftX": 32, "ShiftY": 32,
}  # fmt: skip
ONE_WAY = {"Identity", "AutoContrast", "Equalize", "Invert", "Posterize", "Solarize"}  # have no negative

# Table 9 of the AutoAugment paper: two operations, each with its probability and magnitude (0..9).
IMAGENET = (
    (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
    (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
    (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
    (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
    (("Equalize", 0.4, 4), ("Rotate", 0.8, 8)),
    (("Solarize", 0.6, 3), ("Equalize", 0.6, 7)),
    (("Posterize", 0.8, 5), ("Equalize", 1.0, 2)),
    (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
    (("Equalize", 0.6, 8), ("Posterize", 0.4, 6)),
    (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
    (("Rotate", 0.4, 9), ("Equalize", 0.6, 2)),
    (("Equalize", 0.0, 7), ("Equalize", 0.8, 8)),
    (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
    (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
    (("Sharpness", 0.4, 7), ("Invert", 0.6, 8)),
    (("ShearX", 0.6, 5), ("Equalize", 1.0, 9)),
    (("Color", 0.4, 0), ("Equalize", 0.6, 3)),
    (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
    (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
)


def get_augment(
    name: str, options: Sequence[float] | None = None
) -> AutoAugment | RandAugment | TrivialAugment:
    """Build an augmentation by its name in `AUGMENTS`; `options` are RandAugment's n and m.

    Raises:
        UserError: an unknown name, or options out of range.
    """
    if name not in AUGMENTS:
        raise UserError(f"augmentation wants one of {', '.join(AUGMENTS)} and got {name!r}")
    return AUGMENTS[name](*(options or ()))


@dataclass(frozen=True)
class AutoAugment:
    """The policy that was found for ImageNet: one of 25 pairs of operations, each with its probability."""

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Return an RGB image of the same size, maybe the same one."""
        for name, probability, level in IMAGENET[rng.integers(len(IMAGENET))]:
            if rng.random() < probability:
                image = _apply(image, name, PAPER.get(name, 0) * level / 9, rng)
        return image


@dataclass(frozen=True)
class RandAugment:
    """`n` operations, each one of 14 at random, all at magnitude `m` (0..10, the paper's scale)."""

    n: int = 2
    m: float = 9

    def __post_init__(self):
        if self.n < 1:
            raise UserError(f"randaugment applies n = 1 operation or more, not {self.n}")
        if not 0 <= self.m <= 10:
            raise UserError(f"randaugment's magnitude m goes from 0 to 10, full strength, not {self.m}")

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Return an RGB image of the same size, maybe the same one."""
        for _ in range(self.n):
            image = _apply_any(image, PAPER, self.m / 10, rng)
        return image


@dataclass(frozen=True)
class TrivialAugment:
    """One operation of 14 at random, at a random strength of 31: TrivialAugment Wide."""

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Return an RGB image of the same size, maybe the same one."""
        return _apply_any(image, WIDE, rng.integers(31) / 30, rng)


AUGMENTS = {"autoaugment": AutoAugment, "randaugment": RandAugment, "trivialaugment": TrivialAugment}


def _apply_any(
    image: Image.Image, ranges: Mapping[str, float], strength: float, rng: np.random.Generator
) -> Image.Image:
    name = list(ranges)[rng.integers(len(ranges))]
    return _apply(image, name, ranges[name] * strength, rng)


def _apply(image: Image.Image, name: str, value: float, rng: np.random.Generator) -> Image.Image:
    backwards = name not in ONE_WAY and rng.random() < 0.5
    return OPERATIONS[name](image, -value if backwards else value)
