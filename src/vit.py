"""Vision Transformer (arXiv:2010.11929), as google-research/vision_transformer `models_vit.py` computes it.

Patches, a class token or the mean over the tokens, the blocks of `src/encoder.py`, an optional `pre_logits`.
Parameter names are timm's, but for the separate q, k and v and for MindSpore's gamma and beta.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import numpy as np
from mindspore import Parameter, nn, ops
from mindspore.common.initializer import HeUniform, Normal, Uniform, initializer

from src.dropout import Dropout
from src.encoder import Dense, EncoderBlock, LayerNorm
from src.errors import UserError
from src.vit_map import LAYER_NORM_EPSILON
from src.vit_operators import PatchLinear


class PatchEmbed(nn.Cell):
    """Cuts an image into patches and projects each; fresh weights are those of nn.Conv2d.

    Args:
        patch_size (int): side of a patch in pixels, p.
        dim (int): width of a token, D.

    Inputs:
        x (Tensor): shape (N, 3, H, W); p divides H and W.

    Outputs:
        Tensor, shape (N, H/p * W/p, D), row by row.
    """

    def __init__(self, patch_size: int, dim: int):
        super().__init__()
        shape = (dim, 3, patch_size, patch_size)
        self.weight = Parameter(initializer(HeUniform(math.sqrt(5)), shape), name="weight")
        self.bias = Parameter(initializer(Uniform((3 * patch_size**2) ** -0.5), (dim,)), name="bias")
        self.linear = PatchLinear(patch_size, dim)

    def construct(self, x):
        return self.linear(x, self.weight, self.bias)


class ViT(nn.Cell):
    """Vision Transformer.

    Args:
        image_size (int | tuple): side, or (height, width), in pixels; multiples of `patch_size`.
        patch_size (int): side of a patch in pixels.
        dim (int): width of a token, D.
        depth (int): number of encoder blocks.
        heads (int): attention heads, divides D.
        mlp_dim (int): width inside the MLP.
        num_classes (int): number of logits, K.
        pool (str): `token` for the class token, `mean` for the mean over the patches and no class token.
        pre_logits (bool): Dense(D, D) and tanh before the head, as in the ImageNet-21k files.
        dropout (float): after the position embedding, the attention and both layers of the MLP.
        attention_dropout (float): of the attention weights.
        drop_path (float): stochastic depth of the last block; grows linearly from 0 in the first.
        gelu (str): `tanh` or `exact`.
        epsilon (float): of every LayerNorm.

    Inputs:
        x (Tensor): images, shape (N, 3, H, W).

    Outputs:
        Tensor, logits of shape (N, K).

    Raises:
        UserError: sizes that do not divide.
    """

    def __init__(
        self,
        *,
        image_size: int | tuple[int, int],
        patch_size: int,
        dim: int,
        depth: int,
        heads: int,
        mlp_dim: int,
        num_classes: int,
        pool: str = "token",
        pre_logits: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
        gelu: str = "tanh",
        epsilon: float = LAYER_NORM_EPSILON,
    ):
        super().__init__()
        height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
        for side in (height, width):
            if side % patch_size:
                below = max(side // patch_size, 1) * patch_size
                raise UserError(
                    f"image_size {side} is not a multiple of patch_size {patch_size}; "
                    f"use {below} or {below + patch_size}"
                )
        if dim % heads:
            raise UserError(f"the width {dim} is not a multiple of the {heads} heads")
        if pool not in ("token", "mean"):
            raise UserError(f"pool wants token or mean and got {pool!r}")
        self.grid = (height // patch_size, width // patch_size)
        self.pool = pool
        self.gelu = gelu
        tokens = self.grid[0] * self.grid[1] + (pool == "token")
        self.patch_embed = nn.SequentialCell(OrderedDict(proj=PatchEmbed(patch_size, dim)))  # timm's names
        self.cls_token = None
        if pool == "token":
            self.cls_token = Parameter(initializer("zeros", (1, 1, dim)), name="cls_token")
        self.pos_embed = Parameter(initializer(Normal(0.02), (1, tokens, dim)), name="pos_embed")
        self.dropout = Dropout(p=dropout) if dropout else None
        self.blocks = nn.SequentialCell(
            *(
                EncoderBlock(
                    dim,
                    heads,
                    mlp_dim,
                    dropout=dropout,
                    attention_dropout=attention_dropout,
                    drop_path=float(rate),
                    gelu=gelu,
                    epsilon=epsilon,
                    first_only=pool == "token" and index == depth - 1,
                )
                for index, rate in enumerate(np.linspace(0, drop_path, depth))
            )
        )
        self.norm = LayerNorm(dim, epsilon)
        self.pre_logits = Dense(dim, dim) if pre_logits else None
        self.tanh = nn.Tanh()
        self.head = Dense(dim, num_classes, weight_init="zeros")

    def construct(self, x):
        x = self.patch_embed(x)  # (N, 3, H, W) -> (N, T, D)
        if self.cls_token is not None:
            token = ops.cast(self.cls_token, x.dtype).broadcast_to((x.shape[0], 1, x.shape[2]))
            x = ops.concat((token, x), 1)  # (N, 1, D), (N, T, D) -> (N, 1 + T, D)
        x = x + ops.cast(self.pos_embed, x.dtype)
        if self.dropout is not None:
            x = self.dropout(x)
        x = self.norm(self.blocks(x))
        x = x.mean(1) if self.cls_token is None else x[:, 0]  # (N, T, D) or (N, 1, D) -> (N, D)
        if self.pre_logits is not None:
            x = self.tanh(self.pre_logits(x))
        return self.head(x)  # (N, D) -> (N, K)
