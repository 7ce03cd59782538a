"""Mixup (arXiv:1710.09412) and CutMix (arXiv:1905.04899) of whole batches.

One weight, and one box, for all rows of a batch (big_transfer, bit_pytorch/train.py).
"""

from __future__ import annotations

import math

import numpy as np


def draw_lambda(alpha: float, rng: np.random.Generator) -> float:
    """Draw the weight from Beta(alpha, alpha); 1 for alpha 0."""
    return float(rng.beta(alpha, alpha)) if alpha else 1.0


def mix_batch(
    images: np.ndarray,
    labels: np.ndarray,
    class_num: int,
    mixup_alpha: float,
    cutmix_alpha: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Mix each row with the one half a batch on: the order is random already.

    With an even batch on each of n devices the pairs are those of one device with n times the batch.

    Args:
        images: float32 of shape (N, 3, h, w); not modified.
        labels: int32 of shape (N,).
        class_num: K, the width of the soft labels.
        mixup_alpha: of mixup's Beta distribution, 0 for none.
        cutmix_alpha: of CutMix's. With both it is one of the two, either equally often (arXiv:2012.12877).
        rng: draws the method, the weight and the box.

    Returns:
        Images, and float32 distributions (N, K).
    """
    cuts = cutmix_alpha and (not mixup_alpha or rng.random() < 0.5)
    lam = draw_lambda(cutmix_alpha if cuts else mixup_alpha, rng)
    partners = np.roll(np.arange(len(images)), -(len(images) // 2))
    one_hot = np.zeros((len(labels), class_num), np.float32)
    one_hot[np.arange(len(labels)), labels] = 1
    if cuts:
        return cutmix(images, one_hot, lam, partners, rng)
    return mixup(images, one_hot, lam, partners)


def mixup(
    images: np.ndarray, labels: np.ndarray, lam: float, partners: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mix each row with its partner: `lam * x + (1 - lam) * x[partners]`, images and one-hot labels alike."""
    return _mix(images, lam, partners), _mix(labels, lam, partners)


def cutmix(
    images: np.ndarray, labels: np.ndarray, lam: float, partners: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Fill a box of each image with the same box of its partner; the labels get the shares of the pixels.

    The box has the image's aspect ratio, the share `1 - lam` of its area, in whole pixels, and a centre that
    is uniform over the pixels. What lies outside the image is cut off, so the partner's share may be less.

    Args:
        images: float32 of shape (N, 3, h, w); not modified.
        labels: one-hot, float32 of shape (N, K).
        lam: from 0 to 1.
        partners: for each row the row that it is mixed with, shape (N,).
        rng: draws the centre.
    """
    height, width = images.shape[2:]
    side = math.sqrt(1 - lam)
    rows, columns = _interval(height, side, rng), _interval(width, side, rng)
    mixed = images.copy()
    mixed[:, :, rows, columns] = images[partners, :, rows, columns]
    pixels = height * width
    kept = pixels - (rows.stop - rows.start) * (columns.stop - columns.start)
    return mixed, _mix(labels, kept / pixels, partners)


def _mix(rows: np.ndarray, lam: float, partners: np.ndarray) -> np.ndarray:
    mixed = np.empty_like(rows)
    for row, partner, result in zip(rows, partners, mixed):  # a row at a time stays in the cache
        np.multiply(rows[partner], np.float32(1 - lam), out=result)
        result += np.float32(lam) * row
    return mixed


def _interval(size: int, share: float, rng: np.random.Generator) -> slice:
    """The pixels of a side of `size` that a box covers whose side is `share` of it."""
    length = round(size * share)
    start = int(rng.integers(size)) - length // 2
    return slice(max(start, 0), min(start + length, size))
