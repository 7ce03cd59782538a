"""Made photographs, for machines that have none: shapes, shades, grain, 500 x 375 pixels, some 100 KB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter


def make_photos(folder: Path, *, classes: int, per_class: int, size: tuple[int, int] = (500, 375)) -> Path:
    """Write JPEG files in one folder a class; `size` is (width, height)."""
    rng = np.random.default_rng(0)
    for label in range(classes):
        place = folder / f"class{label}"
        place.mkdir(parents=True)
        for number in range(per_class):
            _photo(rng, size).save(place / f"{number}.jpg", quality=90)
    return folder


def _photo(rng: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    coarse = rng.integers(0, 256, (6, 8, 3), np.uint8)
    image = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(40):
        x, y = rng.integers(0, size[0]), rng.integers(0, size[1])
        reach = int(rng.integers(5, 80))
        draw.ellipse(
            [x - reach, y - reach, x + reach, y + reach], fill=tuple(map(int, rng.integers(0, 256, 3)))
        )
    image = image.filter(ImageFilter.GaussianBlur(1))
    grain = rng.normal(0, 9, (size[1], size[0], 3))
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))
