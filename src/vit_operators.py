"""The arithmetic of ViT without its parameters, from MindSpore's operators.

Each class is a place where `src/cpu_kernels` can put compiled code with the same inputs and outputs.
"""

from __future__ import annotations

from mindspore import nn, ops

from src.dropout import Dropout
from src.errors import UserError
from src.float32_cell import Float32Cell


class Linear(nn.Cell):
    """x W^T + b over the last axis.

    Inputs:
        x (Tensor): shape (..., I).
        weight (Tensor): shape (O, I).
        bias (Tensor): shape (O,).

    Outputs:
        Tensor, shape (..., O).
    """

    def __init__(self):
        super().__init__()
        self.matmul = ops.MatMul(transpose_b=True)
        self.add = ops.BiasAdd()

    def construct(self, x, weight, bias):
        out = self.add(self.matmul(x.reshape(-1, x.shape[-1]), weight), bias)  # (..., I) -> (M, I) -> (M, O)
        return out.reshape((*x.shape[:-1], weight.shape[0]))  # -> (..., O)


class PatchLinear(nn.Cell):
    """Cuts an image into patches and projects each: a convolution whose stride is its kernel.

    Args:
        patch_size (int): side of a patch in pixels, p.
        dim (int): width of a token, D.

    Inputs:
        x (Tensor): shape (N, 3, H, W); p divides H and W.
        weight (Tensor): shape (D, 3, p, p).
        bias (Tensor): shape (D,).

    Outputs:
        Tensor, shape (N, H/p * W/p, D), row by row.
    """

    def __init__(self, patch_size: int, dim: int):
        super().__init__()
        self.conv = ops.Conv2D(out_channel=dim, kernel_size=patch_size, pad_mode="valid", stride=patch_size)
        self.add = ops.BiasAdd()

    def construct(self, x, weight, bias):
        x = self.add(self.conv(x, weight), bias)  # (N, 3, H, W) -> (N, D, H/p, W/p)
        return x.flatten(start_dim=2).swapaxes(1, 2)  # -> (N, D, T) -> (N, T, D)


class LayerNorm(Float32Cell):
    """LayerNorm over the last axis, computed in float32.

    Args:
        epsilon (float): is added to the variance.

    Inputs:
        x (Tensor): shape (..., D).
        gamma (Tensor): shape (D,).
        beta (Tensor): shape (D,).

    Outputs:
        Tensor, shape (..., D), in the type of the amp level.
    """

    def __init__(self, epsilon: float):
        super().__init__()
        self.epsilon = epsilon
        self.norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=epsilon)

    def construct(self, x, gamma, beta):
        return ops.cast(self.norm(x, gamma, beta)[0], self.compute_dtype)


class Gelu(Float32Cell):
    """GELU in float32, by tanh as Google's weights were trained, or exact.

    Inputs:
        x (Tensor): any shape.

    Outputs:
        Tensor of the same shape, in the type of the amp level.
    """

    def __init__(self, kind: str):
        super().__init__()
        if kind not in ("tanh", "exact"):
            raise UserError(f"gelu wants tanh or exact and got {kind!r}")
        self.kind = kind
        self.gelu = nn.GELU(approximate=kind == "tanh")

    def construct(self, x):
        return ops.cast(self.gelu(x), self.compute_dtype)


class AttentionWeights(Float32Cell):
    """softmax(q k^T / sqrt(d)), computed in float32: float16 overflows at 65,504.

    Args:
        head_dim (int): size of a head, d.

    Inputs:
        q (Tensor): shape (N, H, S, d).
        k (Tensor): shape (N, H, T, d).

    Outputs:
        Tensor, shape (N, H, S, T), in the type of the amp level.
    """

    def __init__(self, head_dim: int):
        super().__init__()
        self.scale = head_dim**-0.5
        self.product = ops.BatchMatMul(transpose_b=True)
        self.softmax = ops.Softmax(axis=-1)

    def construct(self, q, k):
        scores = self.product(q * self.scale, k)  # (N, H, S, d), (N, H, T, d) -> (N, H, S, T)
        return ops.cast(self.softmax(scores), self.compute_dtype)


class HeadsAttention(nn.Cell):
    """softmax(q k^T / sqrt(d)) v for each head apart (arXiv:1706.03762).

    Args:
        dim (int): width of a token, D.
        heads (int): number of heads, H; divides D.
        dropout (float): of the attention weights.

    Inputs:
        q (Tensor): shape (N, S, D).
        k (Tensor): shape (N, T, D).
        v (Tensor): shape (N, T, D).

    Outputs:
        Tensor, shape (N, S, D).
    """

    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.weights = AttentionWeights(dim // heads)
        self.dropout = Dropout(p=dropout) if dropout else None
        self.product = ops.BatchMatMul()

    def _split(self, x):
        n, t, d = x.shape
        return x.reshape(n, t, self.heads, d // self.heads).swapaxes(1, 2)  # (N, T, D) -> (N, H, T, d)

    def construct(self, q, k, v):
        weights = self.weights(self._split(q), self._split(k))
        if self.dropout is not None:
            weights = self.dropout(weights)
        values = self.product(weights, self._split(v))  # (N, H, S, T), (N, H, T, d) -> (N, H, S, d)
        return values.swapaxes(1, 2).reshape(q.shape)  # (N, H, S, d) -> (N, S, D)
