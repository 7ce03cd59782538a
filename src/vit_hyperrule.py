"""How Google fine-tunes ViT (arXiv:2010.11929, appendix B.1.1; vision_transformer `configs/common.py`).

SGD with momentum, the rate along a cosine, Inception crops, gradients clipped; no weight decay, no mixup.
Google chose the steps of each data set by hand: Pets and Flowers 500, CIFAR 10,000, ImageNet 20,000. Here
the number of images decides, with the bounds of BiT-HyperRule, which gives the same numbers.
"""

from __future__ import annotations

LR_MAX = 0.03
CROP = 384  # pixels
CROP_MIN = 0.05  # share of the image's area
CLIP_NORM = 1.0


def resolution(patch_size: int) -> int:
    """Side of the square crop in pixels: the multiple of the patch next to 384, from below."""
    return max(CROP // patch_size, 1) * patch_size


def schedule_steps(num_images: int) -> tuple[int, int]:
    """Warm-up end and end, for `num_images` training images over all devices."""
    if num_images < 20_000:
        return (100, 500)
    return (500, 10_000) if num_images < 500_000 else (500, 20_000)
