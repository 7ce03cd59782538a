"""BiT-HyperRule (arXiv:1912.11370, section 3.3; google-research/big_transfer `bit_hyperrule.py`).

Two facts about a data set, the size of its images and how many there are, give every hyper-parameter of a
fine-tune.
"""

from __future__ import annotations

from typing import NamedTuple

LR_MAX = 0.003
BATCH_SIZE = 512


class Resolution(NamedTuple):
    """Square sides in pixels: images are resized to `resize`, then cropped to `crop`."""

    resize: int
    crop: int


def resolution(height: int, width: int) -> Resolution:
    """Sizes for images of `height` x `width` pixels: the area decides, below 96 x 96 or not."""
    return Resolution(160, 128) if height * width < 96 * 96 else Resolution(512, 480)


def schedule_steps(num_images: int) -> tuple[int, ...]:
    """Warm-up end, three decay steps and end, for `num_images` training images over all devices."""
    if num_images < 20_000:
        return (100, 200, 300, 400, 500)
    if num_images < 500_000:
        return (500, 3000, 6000, 9000, 10_000)
    return (500, 6000, 12_000, 18_000, 20_000)


def mixup_alpha(num_images: int) -> float:
    """Parameter of mixup's Beta distribution, 0 for none."""
    return 0.0 if num_images < 20_000 else 0.1
