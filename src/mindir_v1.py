"""Rewrites a MindIR of version 3 as version 1, which the runtimes of MindSpore Lite 2.0 read.

MindSpore 2.3 and later hand most arguments of an operator over as constant inputs that stand last; version 1
has them as attributes of the operator. GroupNorm, which Lite 2.0 does not have, and GELU by tanh, where it
computes the exact one, become arithmetic. Current versions of MindSpore read the result, too.
"""

from __future__ import annotations

import math
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Callable

import numpy as np
from google.protobuf.message import DecodeError
from mindspore.train import mind_ir_pb2 as pb

from src.atomic import replacing
from src.errors import UserError
from src.mindir_nodes import GraphWriter

FROM_VERSION, TO_VERSION = 3, 1
LAYOUTS = ("NCHW", "NHWC", "NCDHW")  # MindSpore's numbers of them

Rule = Callable[[GraphWriter, pb.NodeProto, pb.PrimitiveProto], None]


def rewrite(source: Path, target: Path) -> None:
    """Write the version-1 form of the network in `source`.

    Args:
        source: a file that `mindspore.export(..., file_format="MINDIR")` of 2.8 wrote. Of a network above 1
            GiB that is the `_graph.mindir`, which names files of weights in a folder beside it.
        target: where the result goes when it is complete; may be `source`. In another folder it gets a copy
            of those weights.

    Raises:
        UserError: `source` is missing, damaged, no MindIR or one of another version, or has an operator
            without a rule.
    """
    model = _read(source)
    primitives = {f"REF::{primitive.name}": primitive for primitive in model.primitives}
    try:
        writer = GraphWriter(model.graph)
        for node in model.graph.node:
            if node.op_type != "Constant":
                _rewrite_node(writer, node, primitives.get(node.op_type))
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    del model.primitives[:]
    model.primitives.extend(writer.finish())
    model.mind_ir_version = TO_VERSION
    _copy_weights(model, source.parent, target.parent)
    with replacing(target) as stream:
        os.fchmod(stream.fileno(), 0o644)
        stream.write(model.SerializeToString())


def _read(source: Path) -> pb.ModelProto:
    try:
        model = pb.ModelProto.FromString(source.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {source}: {error.strerror}") from None
    except (DecodeError, UnicodeDecodeError):
        raise UserError(f"{source} is no MindIR, or not all of one; export it again") from None
    if model.mind_ir_version != FROM_VERSION:  # the last field of a file: 0 if the file is cut
        raise UserError(
            f"{source} is a MindIR of version {model.mind_ir_version}, or damaged; wanted is version "
            f"{FROM_VERSION}, which MindSpore 2.8 exports"
        )
    return model


def _rewrite_node(graph: GraphWriter, node: pb.NodeProto, primitive: pb.PrimitiveProto | None) -> None:
    op = primitive.op_type if primitive else node.op_type  # without a primitive it calls a function
    if primitive is None or op not in RULES:
        raise UserError(f"there is no rule for the operator {op} in version {TO_VERSION}; keep version 3")
    RULES[op](graph, node, primitive)


def _copy_weights(model: pb.ModelProto, source: Path, target: Path) -> None:
    """Give the target folder the files of weights that the model names, relative to its own folder."""
    for location in sorted({parameter.external_data.location for parameter in model.graph.parameter} - {""}):
        if not (source / location).is_file():
            raise UserError(f"{source / location} is missing: it holds weights of the network")
        if source.resolve() != target.resolve():
            (target / location).parent.mkdir(parents=True, exist_ok=True)
            with (source / location).open("rb") as weights, replacing(target / location) as stream:
                shutil.copyfileobj(weights, stream)


def _keep(graph: GraphWriter, node: pb.NodeProto, primitive: pb.PrimitiveProto) -> None:
    graph.copy(node, primitive, primitive.op_type, node.input)


def _move(inputs: int, *names: str) -> Rule:
    """A rule: the first `inputs` stay, the constants after them become the attributes of those names."""

    def rule(graph: GraphWriter, node: pb.NodeProto, primitive: pb.PrimitiveProto) -> None:
        _expect(node, primitive, inputs + len(names))
        values = {name: graph.argument(node, index) for index, name in enumerate(names, inputs)}
        graph.copy(node, primitive, primitive.op_type, node.input[:inputs], **values)

    return rule


def _expect(node: pb.NodeProto, primitive: pb.PrimitiveProto, inputs: int) -> None:
    if len(node.input) != inputs:
        raise UserError(
            f"the operator {primitive.op_type} has {len(node.input)} inputs, and {inputs} in MindSpore 2.8"
        )


def _bias_add(graph: GraphWriter, node: pb.NodeProto, primitive: pb.PrimitiveProto) -> None:
    """The layout is a number in version 3 and a word, by two names, in version 1."""
    _expect(node, primitive, 3)
    layout = LAYOUTS[graph.argument(node, 2).i]
    graph.copy(node, primitive, "BiasAdd", node.input[:2], data_format=layout, format=layout)


def _muls(graph: GraphWriter, node: pb.NodeProto, primitive: pb.PrimitiveProto) -> None:
    """A product with a number."""
    graph.copy(node, primitive, "Mul", [node.input[0], graph.argument(node, 1).f])


def _gelu(graph: GraphWriter, node: pb.NodeProto, primitive: pb.PrimitiveProto) -> None:
    """By tanh, as Cells with `approximate` export it, in the order that Lite makes one operator of."""
    op, x = partial(graph.add, node), node.input[0]
    y = op("Add", x, op("Mul", 0.044715, op("Pow", x, 3.0)))
    y = op("Add", 1.0, op("Tanh", op("Mul", math.sqrt(2 / math.pi), y)))
    op("Mul", x, op("Mul", 0.5, y), last=True)


def _group_norm(graph: GraphWriter, node: pb.NodeProto, primitive: pb.PrimitiveProto) -> None:
    """LayerNorm of rows that are a group each, then the scale and the shift of each channel.

    With two threads this is the fastest form in Lite 2.0; means over pixels as (N, H, W, C) need no change of
    layout around convolutions, but run in one thread.
    """
    _expect(node, primitive, 5)
    op = partial(graph.add, node)
    x, _, gamma, beta, _ = node.input
    shape = tuple(next(item for item in node.attribute if item.name == "shape").values[0].tensors[0].dims)
    rows = shape[0] * graph.argument(node, 1).i
    length = math.prod(shape) // rows
    ones, zeros = np.ones(length, np.float32), np.zeros(length, np.float32)
    how = {"begin_norm_axis": -1, "begin_params_axis": -1, "epsilon": graph.argument(node, 4)}
    y = op("Reshape", x, (rows, length))  # (N, C, H, W) -> (N * G, C / G * H * W)
    y = op("LayerNorm", y, ones, zeros, shapes=((rows, length), (rows, 1), (rows, 1)), **how)
    y = op("Reshape", op("TupleGetItem", y, 0), shape)
    per_channel = (1, shape[1], 1, 1)
    y = op("Mul", y, op("Reshape", gamma, per_channel))
    op("Add", y, op("Reshape", beta, per_channel), last=True)


def _tuple_get_item(graph: GraphWriter, node: pb.NodeProto, primitive: pb.PrimitiveProto) -> None:
    """Of GroupNorm's three outputs networks read the first, which is all that is left."""
    if not graph.drop_if_replaced(node):
        _keep(graph, node, primitive)


# What is not here stands in no file that `export.py` makes.
RULES: dict[str, Rule] = {
    "Add": _keep,
    "BatchMatMul": _move(2, "transpose_a", "transpose_b"),
    "BiasAdd": _bias_add,
    "BroadcastTo": _move(1, "shape"),
    "Concat": _move(1, "axis"),
    "Conv2D": _keep,
    "Depend": _keep,
    "Div": _keep,
    "Erf": _keep,
    "Flatten": _keep,
    "GeLU": _gelu,
    "GroupNorm": _group_norm,
    "LayerNorm": _move(3, "begin_norm_axis", "begin_params_axis", "epsilon"),
    "Load": _keep,
    "MakeTuple": _keep,
    "MatMul": _move(2, "transpose_a", "transpose_b"),
    "MaxPool": _keep,
    "Mul": _keep,
    "Muls": _muls,
    "Pad": _keep,
    "ReLU": _keep,
    "ReduceMean": _move(2, "keep_dims"),
    "Reshape": _keep,
    "Softmax": _move(1, "axis"),
    "StridedSlice": _move(4, "begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"),
    "Tanh": _keep,
    "Transpose": _keep,
    "TupleGetItem": _tuple_get_item,
    "UpdateState": _keep,
}
