"""Optimizers by name, with weight decay on kernels alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mindspore import Parameter, Tensor, nn

from src.errors import UserError


def get_optimizer(
    name: str,
    parameters: Sequence[Parameter],
    lr: np.ndarray,
    *,
    momentum: float,
    weight_decay: float,
    loss_scale: float = 1.0,
) -> nn.Optimizer:
    """Build an optimizer whose rate at step i is `lr[i]`.

    Args:
        name: `momentum`: v = momentum * v + g; w = w - lr * v, as torch.optim.SGD.
        parameters: what is trained.
        lr: float32 array, one rate an optimizer step.
        momentum: between 0 and 1.
        weight_decay: L2 penalty, added to the gradient, on parameters of two or more dimensions.
        loss_scale: the gradients are divided by it first.

    Raises:
        UserError: an unknown name.
    """
    if name != "momentum":
        raise UserError(f"opt wants momentum and got {name!r}")
    groups = [{"params": list(parameters)}]
    if weight_decay:
        kernels = [p for p in parameters if p.ndim > 1]
        others = [p for p in parameters if p.ndim <= 1]
        groups = [{"params": kernels, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return nn.Momentum(groups, learning_rate=Tensor(lr), momentum=momentum, loss_scale=loss_scale)
