"""Mixup (arXiv:1710.09412) of whole batches, one weight for all rows (big_transfer, bit_pytorch/train.py)."""

from __future__ import annotations

import numpy as np


def draw_lambda(alpha: float, rng: np.random.Generator) -> float:
    """Draw mixup's weight from Beta(alpha, alpha); 1 for alpha 0."""
    return float(rng.beta(alpha, alpha)) if alpha else 1.0


def mixup(
    images: np.ndarray, labels: np.ndarray, lam: float, partners: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mix each row with its partner: `lam * x + (1 - lam) * x[partners]`, images and one-hot labels alike."""

    def mix(rows: np.ndarray) -> np.ndarray:
        mixed = rows[partners]
        mixed *= np.float32(1 - lam)
        mixed += np.float32(lam) * rows
        return mixed

    return mix(images), mix(labels)
