"""The updates of `src/optimizer.py` and the square sum of `src/train_step.py`, compiled, in float32."""

from __future__ import annotations

from mindspore import nn, ops

from src import optimizer, train_step
from src.cpu_kernels.library import Library


class MomentumUpdate(nn.Cell):
    """See `optimizer.MomentumUpdate`."""

    def __init__(self, library: Library, plain: optimizer.MomentumUpdate):
        super().__init__()
        self.momentum = plain.momentum
        self.update = library.update("apply_momentum", changed=2, read=2)

    def construct(self, param, moment, lr, grad):
        numbers = ops.stack((lr, ops.full_like(lr, self.momentum)))
        return self.update(param, moment, grad, numbers)


class AdamWUpdate(nn.Cell):
    """See `optimizer.AdamWUpdate`."""

    def __init__(self, library: Library, plain: optimizer.AdamWUpdate):
        super().__init__()
        self.beta1, self.beta2 = plain.beta1, plain.beta2
        self.update = library.update("adam_weight_decay", changed=3, read=2)

    def construct(self, param, m, v, lr, epsilon, decay, grad):
        betas = ops.full_like(lr, self.beta1), ops.full_like(lr, self.beta2)
        return self.update(param, m, v, grad, ops.stack((lr, *betas, epsilon, decay)))


class SquareSum(nn.Cell):
    """See `train_step.SquareSum`."""

    def __init__(self, library: Library, plain: train_step.SquareSum):
        super().__init__()
        self.sum = library.operator("square_sum", lambda _: [1])

    def construct(self, grad):
        return self.sum(grad).reshape(())
