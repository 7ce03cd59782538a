"""Softmax cross entropy for class numbers and for soft labels, in float32."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops


class CrossEntropy(nn.Cell):
    """Mean softmax cross entropy.

    Inputs:
        logits (Tensor): shape (N, K), any float type; the arithmetic is float32.
        labels (Tensor): class numbers of shape (N,), int32, or distributions of shape (N, K), float32.

    Outputs:
        Tensor, a float32 scalar.
    """

    def construct(self, logits, labels):
        log_p = ops.log_softmax(ops.cast(logits, ms.float32), -1)
        if labels.ndim == 1:
            labels = ops.one_hot(labels, logits.shape[1], 1.0, 0.0)  # (N,) -> (N, K)
        return -(ops.cast(labels, ms.float32) * log_p).sum(-1).mean()  # (N, K) -> (N,) -> ()
