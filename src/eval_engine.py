"""Exact evaluation: every image once, whatever the batch size."""

from __future__ import annotations

from collections.abc import Iterable

import mindspore as ms
import numpy as np
from mindspore import nn

from src.metric import TopK


def evaluate(network: nn.Cell, batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> dict:
    """Run `network` over `batches` of (images, labels); rows labelled -1 are padding.

    The network is put into inference mode and left in the mode that it had.

    Returns:
        `{"top1", "top5", "samples"}`: fractions of one, top5 None with fewer than five classes.
    """
    was_training = network.training
    network.set_train(False)
    metric = TopK()
    try:
        for images, labels in batches:
            metric.update(network(ms.Tensor(images)).asnumpy().astype(np.float32), labels)
    finally:
        network.set_train(was_training)
    return metric.result()
