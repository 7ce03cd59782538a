"""Softmax cross entropy for class numbers and for soft labels, in float32, with label smoothing."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops

from src.errors import UserError

LOSSES = {"ce": False, "ce_smooth": True, "ce_smooth_mixup": True}  # name: whether it smooths the labels


def get_loss(name: str, *, smooth_factor: float) -> CrossEntropy:
    """Build a loss by its name in `LOSSES`; each takes the labels of mixup, too.

    Args:
        name: `ce`, or `ce_smooth`, or `ce_smooth_mixup`, which is the same as `ce_smooth`.
        smooth_factor: share of the labels that goes to all classes alike, 0 for `ce`.

    Raises:
        UserError: an unknown name, or a factor that does not suit the loss.
    """
    if name not in LOSSES:
        raise UserError(f"loss_name wants one of {', '.join(LOSSES)} and got {name!r}")
    if not 0 <= smooth_factor < 1:
        raise UserError(f"label_smooth_factor must be at least 0 and below 1, not {smooth_factor}")
    if smooth_factor and not LOSSES[name]:
        raise UserError(f"loss_name {name} does not smooth; set label_smooth_factor to 0 or use ce_smooth")
    return CrossEntropy(smooth_factor)


def smooth_targets(labels: ms.Tensor, classes: int, smoothing: float) -> ms.Tensor:
    """Return the distributions that the loss compares with: `(1 - smoothing) * label + smoothing / classes`.

    This is linear: smoothing mixed labels is mixing smoothed ones, and each row sums to one for any two
    labels that were mixed.

    Args:
        labels: shape (N,) or (N, K), as for `CrossEntropy`.
        classes: K.
        smoothing: from 0 to below 1.

    Returns:
        float32 of shape (N, K).
    """
    if labels.ndim == 1:
        labels = ops.one_hot(labels, classes, 1.0, 0.0)  # (N,) -> (N, K)
    return ops.cast(labels, ms.float32) * (1 - smoothing) + smoothing / classes


class CrossEntropy(nn.Cell):
    """Mean softmax cross entropy.

    Args:
        smoothing (float): label smoothing over all K classes (arXiv:1512.00567).

    Inputs:
        logits (Tensor): shape (N, K), any float type; the arithmetic is float32.
        labels (Tensor): class numbers of shape (N,), int32, or distributions of shape (N, K), float32.

    Outputs:
        Tensor, a float32 scalar.
    """

    def __init__(self, smoothing: float = 0.0):
        super().__init__()
        self.smoothing = smoothing

    def construct(self, logits, labels):
        log_p = ops.log_softmax(ops.cast(logits, ms.float32), -1)
        target = smooth_targets(labels, logits.shape[1], self.smoothing)
        return -(target * log_p).sum(-1).mean()  # (N, K) -> (N,) -> ()
