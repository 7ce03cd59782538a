"""Exact top-1 and top-5 counts."""

from __future__ import annotations

import logging

import numpy as np

log = logging.getLogger(__name__)


class TopK:
    """Counts how often the label is among the best one and the best five logits.

    Rows with a negative label are padding and never count. Equal logits rank by class number, as in `argmax`.
    A row that holds not-a-number counts as wrong.
    """

    def __init__(self):
        self.samples = 0
        self.top1 = 0
        self.top5 = 0
        self.not_finite = 0
        self.classes = 0

    def update(self, logits: np.ndarray, labels: np.ndarray) -> None:
        """Count a batch: logits of shape (N, K), labels of shape (N,)."""
        real = labels >= 0
        logits, labels = logits[real], labels[real]
        label_logit = np.take_along_axis(logits, labels[:, None].astype(np.int64), axis=1)
        earlier = np.arange(logits.shape[1]) < labels[:, None]
        rank = ((logits > label_logit) | ((logits == label_logit) & earlier)).sum(axis=1)
        finite = np.isfinite(logits).all(axis=1)
        self.classes = logits.shape[1]
        self.samples += len(labels)
        self.top1 += int((finite & (rank < 1)).sum())
        self.top5 += int((finite & (rank < 5)).sum())
        self.not_finite += int((~finite).sum())

    @property
    def counts(self) -> np.ndarray:
        """What ranks add up: samples, top-1, top-5, not finite; float32, exact up to 16 million."""
        return np.array([self.samples, self.top1, self.top5, self.not_finite], np.float32)

    @counts.setter
    def counts(self, values: np.ndarray) -> None:
        self.samples, self.top1, self.top5, self.not_finite = (int(value) for value in values)

    def result(self) -> dict:
        """`{"top1", "top5", "samples"}`: fractions of one; top5 is None with fewer than five classes."""
        if self.not_finite:
            log.warning("the logits of %d images are not finite; they count as wrong", self.not_finite)
        samples = max(self.samples, 1)
        top5 = self.top5 / samples if self.classes >= 5 else None
        return {"top1": self.top1 / samples, "top5": top5, "samples": self.samples}
