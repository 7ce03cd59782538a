"""The operators of `src/bit_operators.py`, compiled: with the same inputs and outputs, float32, fixed shapes.

Each is made from the Cell whose place it takes. The gradients are compiled, too; `bprop` says what they read.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

from src import bit_operators
from src.cpu_kernels.library import Library

THREE = (ms.float32,) * 3


class _Standardise(nn.Cell):
    def __init__(self, library: Library, epsilon: float):
        super().__init__()
        self.epsilon = Tensor([epsilon], ms.float32)
        self.forward = library.operator("standardise", lambda w, _: (w, [w[0]]), THREE[:2])
        self.backward = library.operator("standardise_grad", lambda grad, *_: grad)

    def construct(self, w):
        return self.forward(w, self.epsilon)

    def bprop(self, w, out, dout):
        return (self.backward(dout[0], out[0], out[1]),)


class Standardise(nn.Cell):
    """See `bit_operators.Standardise`."""

    def __init__(self, library: Library, plain: bit_operators.Standardise):
        super().__init__()
        self.both = _Standardise(library, plain.epsilon)

    def construct(self, w):
        return self.both(w)[0]


def _conv_shape(stride: int):
    return lambda x, w, *_: [x[0], w[0], -(-x[2] // stride), -(-x[3] // stride)]


class Convolution(nn.Cell):
    """See `bit_operators.Convolution`; with three channels x is an image, which needs no gradient."""

    def __init__(self, library: Library, plain: bit_operators.Convolution):
        super().__init__()
        self.forward = library.operator("convolution", _conv_shape(plain.stride))
        self.of_image = plain.in_channels == 3
        if self.of_image:
            self.backward = library.operator("convolution_grad_weight", lambda grad, x, w: w)
        else:
            self.backward = library.operator("convolution_grad", lambda grad, x, w: (x, w), THREE[:2])

    def construct(self, x, weight):
        return self.forward(x, weight)

    def bprop(self, x, weight, out, dout):
        if self.of_image:
            return ops.zeros_like(x), self.backward(dout, x, weight)
        return self.backward(dout, x, weight)


class _GroupNormRelu(nn.Cell):
    def __init__(self, library: Library, groups: int, epsilon: float):
        super().__init__()
        self.epsilon = Tensor([epsilon], ms.float32)
        self.forward = library.operator(
            "group_norm_relu", lambda x, *_: (x, [x[0] * groups], [x[0] * groups]), THREE
        )
        self.backward = library.operator(
            "group_norm_relu_grad", lambda grad, x, gamma, beta, *_: (x, gamma, beta), THREE
        )

    def construct(self, x, gamma, beta):
        return self.forward(x, gamma, beta, self.epsilon)

    def bprop(self, x, gamma, beta, out, dout):
        return self.backward(dout[0], x, gamma, beta, out[1], out[2])


class GroupNormRelu(nn.Cell):
    """See `bit_operators.GroupNormRelu`."""

    def __init__(self, library: Library, plain: bit_operators.GroupNormRelu):
        super().__init__()
        self.both = _GroupNormRelu(library, plain.groups, plain.epsilon)

    def construct(self, x, gamma, beta):
        return self.both(x, gamma, beta)[0]


class _ZeroPadMaxPool(nn.Cell):
    def __init__(self, library: Library):
        super().__init__()

        def shapes(x):
            shape = [x[0], x[1], -(-x[2] // 2), -(-x[3] // 2)]
            return shape, shape

        self.forward = library.operator("zero_pad_max_pool", shapes, (ms.float32, ms.int8))
        self.backward = library.operator("zero_pad_max_pool_grad", lambda grad, x, places: x)

    def construct(self, x):
        return self.forward(x)

    def bprop(self, x, out, dout):
        return (self.backward(dout[0], x, out[1]),)


class ZeroPadMaxPool(nn.Cell):
    """See `bit_operators.ZeroPadMaxPool`."""

    def __init__(self, library: Library, plain: bit_operators.ZeroPadMaxPool):
        super().__init__()
        self.both = _ZeroPadMaxPool(library)

    def construct(self, x):
        return self.both(x)[0]
