"""Operators of `src/bit_operators.py` for a CPU without compiled ones, made of those that are fast there.

MindSpore's GroupNorm, its gradient and its Pad take most of a training step on a CPU. Here sums and
broadcasts are products with constant vectors, the gradient is the closed form, and a border is concatenated.
On other devices the plain operators are the fast ones.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops

from src import bit_operators


class _GroupNorm(nn.Cell):
    """GroupNorm of (N, C, H, W); also the centred groups (N * G, K) and their 1 / deviation (N * G, 1)."""

    def __init__(self, groups: int, epsilon: float):
        super().__init__()
        self.groups, self.epsilon = groups, epsilon
        self.matmul = ops.MatMul()

    def _sum(self, x):
        return self.matmul(x, ops.ones((x.shape[1], 1), ms.float32))  # (R, K) -> (R, 1)

    def _spread(self, x, length):
        return self.matmul(x.reshape(-1, 1), ops.ones((1, length), ms.float32))  # R values -> (R, length)

    def _over_batch(self, x):
        return self.matmul(ops.ones((1, x.shape[0]), ms.float32), x).reshape(-1)  # (N, C) -> (C,)

    def _centred(self, rows):
        length = rows.shape[1]
        return rows - self._spread(self._sum(rows) * (1 / length), length)

    def construct(self, x, gamma, beta):
        n, c, h, w = x.shape
        rows = x.reshape(n * self.groups, -1)
        rows = self._centred(self._centred(rows))  # again: what rounding left of a large mean
        rstd = ops.rsqrt(self._sum(rows * rows) * (1 / rows.shape[1]) + self.epsilon)
        scale = self._spread(rstd, c // self.groups).reshape(n, c) * gamma
        shift = self._spread(beta, n).reshape(c, n).transpose(1, 0)
        out = rows.reshape(n * c, h * w) * self._spread(scale, h * w) + self._spread(shift, h * w)
        return out.reshape(x.shape), rows, rstd

    def bprop(self, x, gamma, beta, out, dout):
        """The gradients of all three, where mean and deviation depend on x."""
        n, c, h, w = x.shape
        _, rows, rstd = out
        in_group, length = c // self.groups, rows.shape[1]
        grad, centred = dout[0].reshape(n * c, h * w), rows.reshape(n * c, h * w)
        sums, along = self._sum(grad).reshape(n, c), self._sum(grad * centred).reshape(n, c)
        scale = self._spread(rstd, in_group).reshape(n, c)
        by_mean = self._sum((sums * gamma).reshape(-1, in_group)) * rstd * (1 / length)
        by_deviation = self._sum((along * gamma).reshape(-1, in_group)) * rstd * rstd * rstd * (1 / length)
        dx = grad * self._spread(scale * gamma, h * w)
        dx = dx - centred * self._spread(self._spread(by_deviation, in_group), h * w)
        dx = dx - self._spread(self._spread(by_mean, in_group), h * w)
        return dx.reshape(x.shape), self._over_batch(along * scale), self._over_batch(sums)


class GroupNormRelu(nn.Cell):
    """See `bit_operators.GroupNormRelu`."""

    def __init__(self, plain: bit_operators.GroupNormRelu):
        super().__init__()
        self.norm = _GroupNorm(plain.groups, plain.epsilon)
        self.relu = ops.ReLU()

    def construct(self, x, gamma, beta):
        return self.relu(self.norm(x, gamma, beta)[0])


class ZeroPadMaxPool(nn.Cell):
    """See `bit_operators.ZeroPadMaxPool`."""

    def __init__(self, plain: bit_operators.ZeroPadMaxPool):
        super().__init__()
        self.pool = plain.pool

    def construct(self, x):
        n, c, h, w = x.shape
        row, column = ops.zeros((n, c, 1, w), x.dtype), ops.zeros((n, c, h + 2, 1), x.dtype)
        x = ops.cat((column, ops.cat((row, x, row), 2), column), 3)  # (N, C, H, W) -> (N, C, H + 2, W + 2)
        return self.pool(x)
