"""The choice of a few training images for each class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from src.errors import UserError
from src.streams import FEW_SHOT


def select_few_shot(
    labels: np.ndarray, class_names: Sequence[str], examples_per_class: int, seed: int
) -> np.ndarray:
    """Choose `examples_per_class` samples of each class without replacement; returns sorted indices."""
    if examples_per_class < 1:
        raise UserError(f"examples_per_class must be at least 1, not {examples_per_class}")
    counts = np.bincount(labels, minlength=len(class_names))
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
    chosen = []
    for label, (name, indices) in enumerate(zip(class_names, members)):
        if len(indices) < examples_per_class:
            raise UserError(
                f"class {name} has {len(indices)} images, but examples_per_class is {examples_per_class}"
            )
        rng = np.random.default_rng((seed, FEW_SHOT, label))
        chosen.append(rng.choice(indices, examples_per_class, replace=False))
    return np.sort(np.concatenate(chosen))
