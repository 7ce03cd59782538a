"""The ONNX graph of BiT: what `src/bit.py` computes with filters that are standardised already.

GroupNorm is not in the operator set before version 18, so it is an InstanceNormalization of the groups, as
other exporters write it; runtimes know that form. ReLU follows every norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from src.npz_map import GROUP_NORM_EPSILON, GROUPS
from src.onnx_builder import IMAGE, GraphBuilder


class _Map(NamedTuple):
    """A value of shape (N, channels, height, width)."""

    value: str
    channels: int
    height: int
    width: int


def add_bit(graph: GraphBuilder, *, units: Sequence[int], width: int, image_size: tuple[int, int]) -> int:
    """Add all nodes of a BiT, from `image` to the logits.

    Args:
        graph: without nodes, with the weights of the network.
        units: bottlenecks of the four blocks.
        width: multiplier of all channels.
        image_size: height and width in pixels.

    Returns:
        The number of logits, K.
    """
    x = _root(graph, _Map(IMAGE, 3, *image_size), 64 * width)
    for index, count in enumerate(units):
        for unit in range(count):
            stride = 2 if unit == 0 and index > 0 else 1
            scope = f"body.block{index + 1}.unit{unit + 1:02d}"
            x = _bottleneck(graph, scope, x, 64 * width * 2**index, stride)
    x = _norm_relu(graph, "head.gn", x)
    pooled = graph.add("ReduceMean", x.value, scope="head", axes=[2, 3], keepdims=0)  # (N, C)
    kernel = graph.take("head.conv.weight", -1, x.channels, 1, 1)
    class_num = len(kernel)
    weight = graph.constant("head.conv.weight", kernel.reshape(class_num, x.channels))
    bias = graph.constant("head.conv.bias", graph.take("head.conv.bias", class_num))
    graph.add("Gemm", pooled, weight, bias, scope="head.conv", transB=1)
    return class_num


def _root(graph: GraphBuilder, x: _Map, channels: int) -> _Map:
    x = _conv(graph, "root.conv", x, channels, kernel=7, stride=2)
    padded = graph.add("Pad", x.value, graph.integers(0, 0, 1, 1, 0, 0, 1, 1), scope="root")  # with zeros
    pooled = graph.add("MaxPool", padded, scope="root", kernel_shape=[3, 3], strides=[2, 2])
    return _Map(pooled, channels, -(-x.height // 2), -(-x.width // 2))


def _bottleneck(graph: GraphBuilder, scope: str, x: _Map, mid: int, stride: int) -> _Map:
    out, shortcut = _norm_relu(graph, f"{scope}.gn1", x), x
    if stride != 1 or x.channels != 4 * mid:
        shortcut = _conv(graph, f"{scope}.downsample", out, 4 * mid, stride=stride)
    out = _conv(graph, f"{scope}.conv1", out, mid)
    out = _conv(graph, f"{scope}.conv2", _norm_relu(graph, f"{scope}.gn2", out), mid, kernel=3, stride=stride)
    out = _conv(graph, f"{scope}.conv3", _norm_relu(graph, f"{scope}.gn3", out), 4 * mid)
    return out._replace(value=graph.add("Add", out.value, shortcut.value, scope=scope))


def _conv(
    graph: GraphBuilder, scope: str, x: _Map, channels: int, *, kernel: int = 1, stride: int = 1
) -> _Map:
    """A convolution without bias, padded alike on all sides."""
    weight = graph.take(f"{scope}.weight", channels, x.channels, kernel, kernel)
    value = graph.add(
        "Conv",
        x.value,
        graph.constant(f"{scope}.weight", weight),
        scope=scope,
        kernel_shape=[kernel, kernel],
        pads=[(kernel - 1) // 2] * 4,
        strides=[stride, stride],
    )
    return _Map(value, channels, -(-x.height // stride), -(-x.width // stride))


def _norm_relu(graph: GraphBuilder, scope: str, x: _Map) -> _Map:
    """GroupNorm and ReLU."""
    ones = graph.constant("ones", np.ones(GROUPS, np.float32))
    zeros = graph.constant("zeros", np.zeros(GROUPS, np.float32))
    y = graph.add("Reshape", x.value, graph.integers(0, GROUPS, -1), scope=scope)  # (N, 32, C/32 * H * W)
    y = graph.add("InstanceNormalization", y, ones, zeros, scope=scope, epsilon=GROUP_NORM_EPSILON)
    y = graph.add("Reshape", y, graph.integers(0, *x[1:]), scope=scope)  # (N, C, H, W)
    for op, leaf in (("Mul", "gamma"), ("Add", "beta")):
        factor = graph.take(f"{scope}.{leaf}", x.channels).reshape(x.channels, 1, 1)
        y = graph.add(op, y, graph.constant(f"{scope}.{leaf}", factor), scope=scope)
    return x._replace(value=graph.add("Relu", y, scope=scope))
