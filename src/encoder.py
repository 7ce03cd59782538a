"""The Transformer encoder of ViT: pre-norm blocks of attention and MLP (arXiv:2010.11929).

Softmax, LayerNorm and GELU are computed in float32 under every amp level. Fresh weights are drawn as in
google-research/vision_transformer `models_vit.py`.
"""

from __future__ import annotations

from mindspore import Parameter, nn, ops
from mindspore.common.initializer import XavierUniform, initializer

from src.dropout import Dropout
from src.errors import UserError
from src.float32_cell import Float32Cell


def dense(inputs: int, outputs: int) -> nn.Dense:
    """A Dense with Xavier weights and zero bias."""
    return nn.Dense(inputs, outputs, weight_init=XavierUniform(), bias_init="zeros")


class LayerNorm(Float32Cell):
    """LayerNorm over the last axis, computed in float32.

    Args:
        dim (int): size of the last axis, D.
        epsilon (float): is added to the variance.

    Inputs:
        x (Tensor): shape (..., D).

    Outputs:
        Tensor, shape (..., D), in the type of the amp level.
    """

    def __init__(self, dim: int, epsilon: float):
        super().__init__()
        self.gamma = Parameter(initializer("ones", (dim,)), name="gamma")
        self.beta = Parameter(initializer("zeros", (dim,)), name="beta")
        self.norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=epsilon)

    def construct(self, x):
        return ops.cast(self.norm(x, self.gamma, self.beta)[0], self.compute_dtype)


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
        self.gelu = nn.GELU(approximate=kind == "tanh")

    def construct(self, x):
        return ops.cast(self.gelu(x), self.compute_dtype)


class AttentionWeights(Float32Cell):
    """softmax(q k^T / sqrt(d)), computed in float32: float16 overflows at 65,504.

    Args:
        head_dim (int): size of a head, d.

    Inputs:
        q (Tensor): shape (N, H, T, d).
        k (Tensor): shape (N, H, T, d).

    Outputs:
        Tensor, shape (N, H, T, T), in the type of the amp level.
    """

    def __init__(self, head_dim: int):
        super().__init__()
        self.scale = head_dim**-0.5
        self.product = ops.BatchMatMul(transpose_b=True)
        self.softmax = ops.Softmax(axis=-1)

    def construct(self, q, k):
        scores = self.product(q * self.scale, k)  # (N, H, T, d), (N, H, T, d) -> (N, H, T, T)
        return ops.cast(self.softmax(scores), self.compute_dtype)


class Attention(nn.Cell):
    """Multi-head self-attention.

    Args:
        dim (int): width of a token, D.
        heads (int): number of heads, H; divides D.
        dropout (float): of the attention weights.

    Inputs:
        x (Tensor): shape (N, T, D).

    Outputs:
        Tensor, shape (N, T, D).
    """

    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.q = dense(dim, dim)
        self.k = dense(dim, dim)
        self.v = dense(dim, dim)
        self.proj = dense(dim, dim)
        self.weights = AttentionWeights(dim // heads)
        self.dropout = Dropout(p=dropout) if dropout else None
        self.product = ops.BatchMatMul()

    def _split(self, x):
        n, t, d = x.shape
        return x.reshape(n, t, self.heads, d // self.heads).swapaxes(1, 2)  # (N, T, D) -> (N, H, T, d)

    def construct(self, x):
        weights = self.weights(self._split(self.q(x)), self._split(self.k(x)))
        if self.dropout is not None:
            weights = self.dropout(weights)
        values = self.product(weights, self._split(self.v(x)))  # (N, H, T, T), (N, H, T, d) -> (N, H, T, d)
        return self.proj(values.swapaxes(1, 2).reshape(x.shape))  # (N, H, T, d) -> (N, T, D)


class Mlp(nn.Cell):
    """Dense, GELU, Dense.

    Args:
        dim (int): width of a token, D.
        mlp_dim (int): width in between, M.
        dropout (float): after each layer.
        gelu (str): `tanh` or `exact`.

    Inputs:
        x (Tensor): shape (N, T, D).

    Outputs:
        Tensor, shape (N, T, D).
    """

    def __init__(self, dim: int, mlp_dim: int, dropout: float, gelu: str):
        super().__init__()
        self.fc1 = dense(dim, mlp_dim)
        self.gelu = Gelu(gelu)
        self.fc2 = dense(mlp_dim, dim)
        self.dropout = Dropout(p=dropout) if dropout else None

    def construct(self, x):
        x = self.gelu(self.fc1(x))  # (N, T, D) -> (N, T, M)
        if self.dropout is not None:
            x = self.dropout(x)
        x = self.fc2(x)  # (N, T, M) -> (N, T, D)
        return x if self.dropout is None else self.dropout(x)


class DropPath(nn.Cell):
    """Stochastic depth (arXiv:1603.09382): drops whole samples while training, and scales the others up.

    Args:
        p (float): probability of a drop.

    Inputs:
        x (Tensor): shape (N, T, D).

    Outputs:
        Tensor, shape (N, T, D).
    """

    def __init__(self, p: float):
        super().__init__()
        self.dropout = Dropout(p=p)

    def construct(self, x):
        keep = self.dropout(ops.ones((x.shape[0], 1, 1), x.dtype))  # 0 or 1 / (1 - p)
        return x * keep


class EncoderBlock(nn.Cell):
    """Pre-norm attention and MLP, each with a residual connection.

    Args:
        dim (int): width of a token, D.
        heads (int): attention heads.
        mlp_dim (int): width inside the MLP.
        dropout (float): of the attention's output and in the MLP.
        attention_dropout (float): of the attention weights.
        drop_path (float): stochastic depth of both branches.
        gelu (str): `tanh` or `exact`.
        epsilon (float): of LayerNorm.

    Inputs:
        x (Tensor): shape (N, T, D).

    Outputs:
        Tensor, shape (N, T, D).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        mlp_dim: int,
        *,
        dropout: float,
        attention_dropout: float,
        drop_path: float,
        gelu: str,
        epsilon: float,
    ):
        super().__init__()
        self.norm1 = LayerNorm(dim, epsilon)
        self.attn = Attention(dim, heads, attention_dropout)
        self.norm2 = LayerNorm(dim, epsilon)
        self.mlp = Mlp(dim, mlp_dim, dropout, gelu)
        self.dropout = Dropout(p=dropout) if dropout else None
        self.drop_path = DropPath(drop_path) if drop_path else None

    def construct(self, x):
        y = self.attn(self.norm1(x))
        if self.dropout is not None:
            y = self.dropout(y)
        if self.drop_path is not None:
            y = self.drop_path(y)
        x = x + y
        y = self.mlp(self.norm2(x))
        if self.drop_path is not None:
            y = self.drop_path(y)
        return x + y
