"""Exact evaluation: every image once, whatever the batch size."""

from __future__ import annotations

from collections.abc import Iterable

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from src.metric import TopK


def evaluate(
    network: nn.Cell, batches: Iterable[tuple[np.ndarray, np.ndarray]], *, device_num: int = 1
) -> dict:
    """Run `network` over `batches` of (images, labels); rows labelled -1 are padding.

    With several ranks each has batches of its own, and all get the result of all images.

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
    if device_num > 1:
        metric.counts = ops.AllReduce()(ms.Tensor(metric.counts)).asnumpy()
    return metric.result()
