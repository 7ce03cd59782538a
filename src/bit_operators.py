"""The arithmetic of BiT without its parameters, from MindSpore's operators.

Each class is a place where `src/cpu_kernels` can put compiled code with the same inputs and outputs.
"""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.ops.auto_generate import GroupNorm  # amp O1 cannot rewrite ops.group_norm

from src.float32_cell import Float32Cell


class Standardise(Float32Cell):
    """Rows with mean 0, divided by sqrt(var + epsilon) with the biased variance (arXiv:1903.10520).

    In float32. Means and their way back to rows are products with constant vectors, and the gradient is the
    closed form: on a CPU the plain expression and its automatic gradient take longer than the convolutions,
    and each operator that broadcasts keeps sixteen bytes an element for good.

    Args:
        fan_in (int): length of a row, K.
        epsilon (float): is added to the variance.

    Inputs:
        w (Tensor): shape (D, K).

    Outputs:
        Tensor, shape (D, K), float32.
    """

    def __init__(self, fan_in: int, epsilon: float):
        super().__init__()
        self.average = Tensor(np.full((fan_in, 1), 1.0 / fan_in, np.float32))
        self.ones = Tensor(np.ones((1, fan_in), np.float32))
        self.matmul = ops.MatMul()
        self.epsilon = epsilon

    def _mean(self, x):
        return self.matmul(x, self.average)  # (D, K) -> (D, 1)

    def _spread(self, x):
        return self.matmul(x, self.ones)  # (D, 1) -> (D, K)

    def _centre_and_scale(self, w):
        w = w - self._spread(self._mean(w))
        w = w - self._spread(self._mean(w))  # what rounding left: once alone turns a constant row into noise
        return w, self._spread(ops.rsqrt(self._mean(w * w) + self.epsilon))

    def construct(self, w):
        centred, scale = self._centre_and_scale(w)
        return centred * scale

    def bprop(self, w, out, dout):
        """The gradient of (w - mean) * scale, where both depend on w."""
        scale = self._centre_and_scale(w)[1]
        shift = self._spread(self._mean(dout))
        along = out * self._spread(self._mean(dout * out))
        return ((dout - shift - along) * scale,)


class Convolution(nn.Cell):
    """2-D convolution with symmetric zero padding that keeps the size at stride 1, without bias.

    Args:
        in_channels (int): C.
        out_channels (int): D.
        kernel_size (int): side of the square kernel, k, odd.
        stride (int): in both directions, s.

    Inputs:
        x (Tensor): shape (N, C, H, W).
        weight (Tensor): shape (D, C, k, k).

    Outputs:
        Tensor, shape (N, D, ceil(H / s), ceil(W / s)).
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int):
        super().__init__()
        self.in_channels, self.kernel_size, self.stride = in_channels, kernel_size, stride
        self.conv = ops.Conv2D(
            out_channel=out_channels,
            kernel_size=kernel_size,
            pad_mode="pad",
            pad=(kernel_size - 1) // 2,
            stride=stride,
        )

    def construct(self, x, weight):
        return self.conv(x, weight)


class GroupNormRelu(Float32Cell):
    """GroupNorm (arXiv:1803.08494), then ReLU, in float32.

    Args:
        groups (int): number of groups, divides C.
        epsilon (float): is added to the variance.

    Inputs:
        x (Tensor): shape (N, C, H, W).
        gamma (Tensor): shape (C,).
        beta (Tensor): shape (C,).

    Outputs:
        Tensor, shape (N, C, H, W), in the type of the amp level.
    """

    def __init__(self, groups: int, epsilon: float):
        super().__init__()
        self.groups, self.epsilon = groups, epsilon
        self.norm = GroupNorm()
        self.relu = ops.ReLU()

    def construct(self, x, gamma, beta):
        x = self.norm(x, self.groups, gamma, beta, self.epsilon)[0]
        return self.relu(ops.cast(x, self.compute_dtype))


class ZeroPadMaxPool(nn.Cell):
    """One pixel of zeros, then 3x3 stride-2 max pool without further padding.

    Inputs:
        x (Tensor): shape (N, C, H, W).

    Outputs:
        Tensor, shape (N, C, ceil(H / 2), ceil(W / 2)).
    """

    def __init__(self):
        super().__init__()
        self.pad = nn.Pad(((0, 0), (0, 0), (1, 1), (1, 1)))
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="valid")

    def construct(self, x):
        return self.pool(self.pad(x))  # (N, C, H, W) -> (N, C, H + 2, W + 2) -> (N, C, ceil(H/2), ceil(W/2))
