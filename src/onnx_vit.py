"""The ONNX graph of ViT: what `src/vit.py` computes, for one size of image.

Folded into the weights: the scale of the scores into q, the class token into its row of the position
embedding, the transposes of Dense. The class token is cut out before the last norm, which treats each token
by itself.
"""

from __future__ import annotations

import math

import numpy as np

from src.onnx_builder import IMAGE, GraphBuilder
from src.vit_map import LAYER_NORM_EPSILON


def add_vit(
    graph: GraphBuilder,
    *,
    patch_size: int,
    dim: int,
    depth: int,
    heads: int,
    mlp_dim: int,
    grid: tuple[int, int],
    pool: str,
    pre_logits: bool,
    gelu: str,
) -> int:
    """Add all nodes of a ViT, from `image` to the logits.

    Args:
        graph: without nodes, with the weights of the network.
        patch_size: side of a patch in pixels.
        dim: width of a token, D.
        depth: number of encoder blocks.
        heads: attention heads, H.
        mlp_dim: width inside the MLP.
        grid: rows and columns of patches.
        pool: `token` or `mean`.
        pre_logits: a Dense and tanh before the head.
        gelu: `tanh` or `exact`.

    Returns:
        The number of logits, K.
    """
    x = _tokens(graph, patch_size, dim, grid, pool)
    for index in range(depth):
        scope = f"blocks.{index}"
        y = _attention(graph, f"{scope}.attn", _norm(graph, f"{scope}.norm1", x, dim), dim, heads)
        x = graph.add("Add", x, y, scope=scope)
        y = _dense(graph, f"{scope}.mlp.fc1", _norm(graph, f"{scope}.norm2", x, dim), dim, mlp_dim)
        y = _dense(graph, f"{scope}.mlp.fc2", _GELU[gelu](graph, f"{scope}.mlp.gelu", y), mlp_dim, dim)
        x = graph.add("Add", x, y, scope=scope)
    if pool == "token":
        first = graph.constant("first", np.array(0, np.int64))
        x = _norm(graph, "norm", graph.add("Gather", x, first, scope="pool", axis=1), dim)
    else:
        x = graph.add("ReduceMean", _norm(graph, "norm", x, dim), scope="pool", axes=[1], keepdims=0)
    if pre_logits:  # (N, T, D) -> (N, D)
        x = graph.add("Tanh", _gemm(graph, "pre_logits", x, dim, dim)[0], scope="pre_logits")
    return _gemm(graph, "head", x, dim, -1)[1]


def _tokens(graph: GraphBuilder, patch_size: int, dim: int, grid: tuple[int, int], pool: str) -> str:
    """Patches, the class token and the position embedding."""
    scope, side, patches = "patch_embed.proj", [patch_size, patch_size], grid[0] * grid[1]
    kernel = graph.constant(f"{scope}.weight", graph.take(f"{scope}.weight", dim, 3, *side))
    bias = graph.constant(f"{scope}.bias", graph.take(f"{scope}.bias", dim))
    x = graph.add("Conv", IMAGE, kernel, bias, scope=scope, kernel_shape=side, strides=side)
    x = graph.add("Reshape", x, graph.integers(0, dim, patches), scope="patch_embed")
    x = graph.add("Transpose", x, scope="patch_embed", perm=[0, 2, 1])  # (N, D, T) -> (N, T, D)
    position = graph.take("pos_embed", 1, patches + (pool == "token"), dim)
    if pool == "token":
        position = position.copy()
        position[0, 0] += graph.take("cls_token", 1, 1, dim)[0, 0]
        x = graph.add(
            "Pad", x, graph.integers(0, 1, 0, 0, 0, 0), scope="cls_token"
        )  # a row of zeros in front
    return graph.add("Add", x, graph.constant("pos_embed", position), scope="pos_embed")


def _norm(graph: GraphBuilder, scope: str, x: str, dim: int) -> str:
    gamma, beta = (graph.constant(n, graph.take(n, dim)) for n in (f"{scope}.gamma", f"{scope}.beta"))
    return graph.add("LayerNormalization", x, gamma, beta, scope=scope, axis=-1, epsilon=LAYER_NORM_EPSILON)


def _dense(graph: GraphBuilder, scope: str, x: str, inputs: int, outputs: int, scale: float = 1.0) -> str:
    """A Dense over the last of three axes, times a factor."""
    weight = graph.take(f"{scope}.weight", outputs, inputs).T
    bias = graph.take(f"{scope}.bias", outputs)
    if scale != 1:
        weight, bias = weight * np.float32(scale), bias * np.float32(scale)
    x = graph.add("MatMul", x, graph.constant(f"{scope}.weight", weight), scope=scope)
    return graph.add("Add", x, graph.constant(f"{scope}.bias", bias), scope=scope)


def _gemm(graph: GraphBuilder, scope: str, x: str, inputs: int, outputs: int) -> tuple[str, int]:
    """A Dense over the last of two axes, and the number of its outputs."""
    weight = graph.take(f"{scope}.weight", outputs, inputs)
    bias = graph.take(f"{scope}.bias", len(weight))
    names = (graph.constant(f"{scope}.weight", weight), graph.constant(f"{scope}.bias", bias))
    return graph.add("Gemm", x, *names, scope=scope, transB=1), len(weight)


def _attention(graph: GraphBuilder, scope: str, x: str, dim: int, heads: int) -> str:
    def split(letter: str, perm: list[int], scale: float = 1.0) -> str:
        part = _dense(graph, f"{scope}.{letter}", x, dim, dim, scale)
        part = graph.add(
            "Reshape", part, graph.integers(0, 0, heads, dim // heads), scope=f"{scope}.{letter}"
        )
        return graph.add("Transpose", part, scope=f"{scope}.{letter}", perm=perm)

    q = split("q", [0, 2, 1, 3], (dim // heads) ** -0.5)  # (N, H, T, d)
    k = split("k", [0, 2, 3, 1])  # (N, H, d, T)
    weights = graph.add("Softmax", graph.add("MatMul", q, k, scope=scope), scope=scope, axis=-1)
    values = graph.add("MatMul", weights, split("v", [0, 2, 1, 3]), scope=scope)
    values = graph.add("Transpose", values, scope=scope, perm=[0, 2, 1, 3])  # (N, H, T, d) -> (N, T, H, d)
    values = graph.add("Reshape", values, graph.integers(0, 0, dim), scope=scope)
    return _dense(graph, f"{scope}.proj", values, dim, dim)


def _gelu_tanh(graph: GraphBuilder, scope: str, x: str) -> str:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), in the order that onnxruntime fuses."""
    y = graph.add("Pow", x, graph.scalar(3), scope=scope)
    y = graph.add("Mul", y, graph.scalar(0.044715), scope=scope)
    y = graph.add("Add", x, y, scope=scope)
    y = graph.add("Mul", y, graph.scalar(math.sqrt(2 / math.pi)), scope=scope)
    y = graph.add("Add", graph.add("Tanh", y, scope=scope), graph.scalar(1), scope=scope)
    return graph.add("Mul", graph.add("Mul", x, graph.scalar(0.5), scope=scope), y, scope=scope)


def _gelu_exact(graph: GraphBuilder, scope: str, x: str) -> str:
    """0.5 x (1 + erf(x / sqrt(2))), in the order that onnxruntime fuses."""
    y = graph.add("Erf", graph.add("Div", x, graph.scalar(math.sqrt(2)), scope=scope), scope=scope)
    y = graph.add("Mul", x, graph.add("Add", y, graph.scalar(1), scope=scope), scope=scope)
    return graph.add("Mul", y, graph.scalar(0.5), scope=scope)


_GELU = {"tanh": _gelu_tanh, "exact": _gelu_exact}
