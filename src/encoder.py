"""The Transformer encoder of ViT: pre-norm blocks of attention and MLP (arXiv:2010.11929).

Softmax, LayerNorm and GELU are computed in float32 under every amp level. Fresh weights are drawn as in
google-research/vision_transformer `models_vit.py`.
"""

from __future__ import annotations

from mindspore import Parameter, nn, ops
from mindspore.common.initializer import initializer

from src import vit_operators
from src.dropout import Dropout
from src.float32_cell import Float32Cell


class Dense(nn.Cell):
    """x W^T + b over the last axis.

    Args:
        inputs (int): size of the last axis, I.
        outputs (int): O.
        weight_init (str | Initializer): Xavier by default; the bias begins at zero.

    Inputs:
        x (Tensor): shape (..., I).

    Outputs:
        Tensor, shape (..., O).
    """

    def __init__(self, inputs: int, outputs: int, weight_init="xavier_uniform"):
        super().__init__()
        self.weight = Parameter(initializer(weight_init, (outputs, inputs)), name="weight")
        self.bias = Parameter(initializer("zeros", (outputs,)), name="bias")
        self.linear = vit_operators.Linear()

    def construct(self, x):
        return self.linear(x, self.weight, self.bias)


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
        self.norm = vit_operators.LayerNorm(epsilon)

    def construct(self, x):
        return self.norm(x, self.gamma, self.beta)


class Attention(nn.Cell):
    """Multi-head attention.

    Args:
        dim (int): width of a token, D.
        heads (int): number of heads, H; divides D.
        dropout (float): of the attention weights.

    Inputs:
        x (Tensor): the tokens that ask, shape (N, S, D).
        context (Tensor): the tokens that answer, shape (N, T, D).

    Outputs:
        Tensor, shape (N, S, D).
    """

    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.q = Dense(dim, dim)
        self.k = Dense(dim, dim)
        self.v = Dense(dim, dim)
        self.proj = Dense(dim, dim)
        self.heads = vit_operators.HeadsAttention(dim, heads, dropout)

    def construct(self, x, context):
        return self.proj(self.heads(self.q(x), self.k(context), self.v(context)))


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
        self.fc1 = Dense(dim, mlp_dim)
        self.gelu = vit_operators.Gelu(gelu)
        self.fc2 = Dense(mlp_dim, dim)
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
        first_only (bool): compute the first token alone, which still sees all of them.

    Inputs:
        x (Tensor): shape (N, T, D).

    Outputs:
        Tensor, shape (N, T, D), or (N, 1, D) with `first_only`.
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
        first_only: bool = False,
    ):
        super().__init__()
        self.first_only = first_only
        self.norm1 = LayerNorm(dim, epsilon)
        self.attn = Attention(dim, heads, attention_dropout)
        self.norm2 = LayerNorm(dim, epsilon)
        self.mlp = Mlp(dim, mlp_dim, dropout, gelu)
        self.dropout = Dropout(p=dropout) if dropout else None
        self.drop_path = DropPath(drop_path) if drop_path else None

    def construct(self, x):
        context = self.norm1(x)
        y = context
        if self.first_only:
            x, y = x[:, :1], y[:, :1]  # (N, T, D) -> (N, 1, D)
        y = self.attn(y, context)
        if self.dropout is not None:
            y = self.dropout(y)
        if self.drop_path is not None:
            y = self.drop_path(y)
        x = x + y
        y = self.mlp(self.norm2(x))
        if self.drop_path is not None:
            y = self.drop_path(y)
        return x + y
