"""Exact evaluation: every image once, whatever the batch size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Callable

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from tqdm import tqdm

from src.metric import TopK


def evaluate(
    network: nn.Cell,
    batches: Iterable[tuple[np.ndarray, np.ndarray]],
    *,
    device_num: int = 1,
    stopped: Callable[[], bool] | None = None,
    progress_bar: bool = False,
) -> dict | None:
    """Run `network` over `batches` of (images, labels); rows labelled -1 are padding.

    With several ranks each has batches of its own, and all get the result of all images.

    The network is put into inference mode and left in the mode that it had.

    Args:
        network: (N, 3, H, W) -> logits (N, K).
        batches: of this rank; every rank has equally many.
        device_num: number of ranks.
        stopped: is asked after each batch; when it is true on any rank, all give up.
        progress_bar: show one when standard error is a terminal.

    Returns:
        `{"top1", "top5", "samples"}`: fractions of one, top5 None with fewer than five classes. None when
        it was given up.
    """
    was_training = network.training
    network.set_train(False)
    metric = TopK()
    try:
        disable = None if progress_bar else True  # None: where there is no terminal
        for images, labels in tqdm(batches, "evaluation", leave=False, unit="batch", disable=disable):
            metric.update(network(ms.Tensor(images)).asnumpy().astype(np.float32), labels)
            if stopped is not None and _any_rank(stopped(), device_num):
                return None
    finally:
        network.set_train(was_training)
    if device_num > 1:
        metric.counts = ops.AllReduce()(ms.Tensor(metric.counts)).asnumpy()
    return metric.result()


def _any_rank(flag: bool, device_num: int) -> bool:
    if device_num == 1:
        return flag
    return bool(ops.AllReduce()(ms.Tensor([float(flag)], ms.float32)).asnumpy()[0] > 0)
