"""The operators of `src/vit_operators.py`, compiled: with the same inputs and outputs, float32, fixed shapes.

Each is made from the Cell whose place it takes. The gradients are compiled, too; `bprop` says what they read.
"""

from __future__ import annotations

import math

import mindspore as ms
from mindspore import Tensor, nn, ops

from src import vit_operators
from src.cpu_kernels.library import Library

THREE = (ms.float32,) * 3


class Linear(nn.Cell):
    """See `vit_operators.Linear`."""

    def __init__(self, library: Library, plain: vit_operators.Linear):
        super().__init__()
        self.forward = library.operator("linear", lambda x, w, _: [*x[:-1], w[0]])
        self.backward = library.operator("linear_grad", lambda grad, x, w: (x, w, [w[0]]), THREE)

    def construct(self, x, weight, bias):
        return self.forward(x, weight, bias)

    def bprop(self, x, weight, bias, out, dout):
        return self.backward(dout, x, weight)


class PatchLinear(nn.Cell):
    """See `vit_operators.PatchLinear`; the image needs no gradient."""

    def __init__(self, library: Library, plain: vit_operators.PatchLinear):
        super().__init__()
        self.forward = library.operator(
            "patch_linear", lambda x, w, _: [x[0], x[2] // w[2] * (x[3] // w[3]), w[0]]
        )
        self.backward = library.operator("patch_linear_grad", lambda grad, x, w: (w, [w[0]]), THREE[:2])

    def construct(self, x, weight, bias):
        return self.forward(x, weight, bias)

    def bprop(self, x, weight, bias, out, dout):
        grads = self.backward(dout, x, weight)
        return ops.zeros_like(x), grads[0], grads[1]


class _LayerNorm(nn.Cell):
    def __init__(self, library: Library, epsilon: float):
        super().__init__()
        self.epsilon = Tensor([epsilon], ms.float32)

        def shapes(x, *_):
            rows = [math.prod(x[:-1])]
            return x, rows, rows

        self.forward = library.operator("layer_norm", shapes, THREE)
        self.backward = library.operator(
            "layer_norm_grad", lambda grad, x, gamma, *_: (x, gamma, gamma), THREE
        )

    def construct(self, x, gamma, beta):
        return self.forward(x, gamma, beta, self.epsilon)

    def bprop(self, x, gamma, beta, out, dout):
        return self.backward(dout[0], x, gamma, out[1], out[2])


class LayerNorm(nn.Cell):
    """See `vit_operators.LayerNorm`."""

    def __init__(self, library: Library, plain: vit_operators.LayerNorm):
        super().__init__()
        self.both = _LayerNorm(library, plain.epsilon)

    def construct(self, x, gamma, beta):
        return self.both(x, gamma, beta)[0]


class Gelu(nn.Cell):
    """See `vit_operators.Gelu`."""

    def __init__(self, library: Library, plain: vit_operators.Gelu):
        super().__init__()
        self.forward = library.operator(f"gelu_{plain.kind}", lambda x: x)
        self.backward = library.operator(f"gelu_{plain.kind}_grad", lambda grad, x: x)

    def construct(self, x):
        return self.forward(x)

    def bprop(self, x, out, dout):
        return (self.backward(dout, x),)


class _HeadsAttention(nn.Cell):
    def __init__(self, library: Library, heads: int):
        super().__init__()
        self.forward = library.operator("attention", lambda q, k, v: (q, [q[0], heads, q[1], 2]), THREE[:2])
        self.backward = library.operator("attention_grad", lambda grad, q, k, v, *_: (q, k, v), THREE)

    def construct(self, q, k, v):
        return self.forward(q, k, v)

    def bprop(self, q, k, v, out, dout):
        return self.backward(dout[0], q, k, v, out[1])


class HeadsAttention(nn.Cell):
    """See `vit_operators.HeadsAttention`; without dropout."""

    def __init__(self, library: Library, plain: vit_operators.HeadsAttention):
        super().__init__()
        self.both = _HeadsAttention(library, plain.heads)

    def construct(self, q, k, v):
        return self.both(q, k, v)[0]
