"""Writes the nodes of a MindIR graph in the form of version 1: operators with attributes, and constants.

Field names and the layout are those of `mindspore/train/mind_ir_pb2.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Union

import numpy as np
from mindspore.train import mind_ir_pb2 as pb

from src.errors import UserError

Attribute = pb.AttributeProto
Value = Union[bool, int, float, str, tuple, pb.AttributeProto]


def attribute(name: str, value: Value) -> pb.AttributeProto:
    """An attribute of that name; a tuple holds whole numbers."""
    if isinstance(value, Attribute):
        made = Attribute()
        made.CopyFrom(value)
    elif isinstance(value, bool):
        made = Attribute(type=Attribute.BOOL, i=int(value))
    elif isinstance(value, int):
        made = Attribute(type=Attribute.INT64, i=value)
    elif isinstance(value, float):
        made = Attribute(type=Attribute.FLOAT, f=value)
    elif isinstance(value, str):
        made = Attribute(type=Attribute.STRING, s=value.encode())
    else:
        made = Attribute(type=Attribute.TUPLE)
        made.values.extend(Attribute(type=Attribute.INT64, ints=[number]) for number in value)
    made.name = name
    return made


class GraphWriter:
    """Takes the nodes of a graph one by one, in the order of computation, and makes those of version 1.

    Only constants that a new node reads are written. Tensors among them become parameters of the graph: the
    passes of Lite that recognise GELU want its numbers as parameters.

    Args:
        graph (GraphProto): what is rewritten; `finish` replaces its nodes.
    """

    def __init__(self, graph: pb.GraphProto):
        self._graph = graph
        self._constants = {
            node.output[0]: next(item for item in node.attribute if item.name == "value")
            for node in graph.node
            if node.op_type == "Constant"
        }
        self._nodes: list[pb.NodeProto] = []
        self._primitives: dict[bytes, pb.PrimitiveProto] = {}
        self._replaced: set[str] = set()  # outputs of the last nodes that `add` wrote
        self._alias: dict[str, str] = {}  # output of a node that was left out -> what its readers read
        self._written: dict[bytes, str] = {}  # content of a constant -> its name

    def argument(self, node: pb.NodeProto, index: int) -> pb.AttributeProto:
        """The constant that stands at an input of `node`.

        Raises:
            UserError: the node computes it.
        """
        if node.input[index] not in self._constants:
            raise UserError(f"input {index} of {node.domain} is computed, and has to be a constant")
        return self._constants[node.input[index]]

    def copy(
        self, node: pb.NodeProto, primitive: pb.PrimitiveProto, op: str, inputs: Iterable, **attributes: Value
    ) -> None:
        """Write `node` with other inputs, as operator `op`, with `attributes` besides the primitive's own."""
        made = pb.PrimitiveProto()
        made.CopyFrom(primitive)
        made.op_type = op
        made.attribute.extend(attribute(name, value) for name, value in attributes.items())
        copied = pb.NodeProto()
        copied.CopyFrom(node)
        copied.op_type = self._reference(made)
        del copied.input[:]
        copied.input.extend([self._input(value) for value in inputs])
        self._nodes.append(copied)

    def add(
        self,
        node: pb.NodeProto,
        op: str,
        *inputs,
        last: bool = False,
        shapes: tuple = (),
        **attributes: Value,
    ) -> str:
        """Write a node that is a part of what `node` was, and return the name of its output.

        Args:
            node: what is being replaced.
            op: the operator.
            *inputs: names of outputs, or values: a float or an array becomes a parameter, a whole number or a
                tuple of them a constant.
            last: give the output the name that the output of `node` has.
            shapes: of the outputs, if there are several; Lite finds a single one by itself.
            **attributes: of the operator.
        """
        made = pb.PrimitiveProto(op_type=op)
        made.attribute.extend(attribute(name, value) for name, value in attributes.items())
        inputs = [self._input(value) for value in inputs]
        part = f"{op}{len(self._nodes)}"
        output = node.output[0] if last else f"{node.output[0]}/{part}"
        if last:
            self._replaced.add(output)
        written = pb.NodeProto(op_type=self._reference(made), input=inputs, output=[output], name=output)
        written.domain = f"{node.domain}/{part}"
        if shapes:
            outputs = written.attribute.add(name="shape", type=Attribute.TUPLE)
            for shape in shapes:
                tensor = outputs.values.add(type=Attribute.TENSORS).tensors.add(dims=shape)
                tensor.data_type = pb.TensorProto.FLOAT
        self._nodes.append(written)
        return output

    def drop_if_replaced(self, node: pb.NodeProto) -> bool:
        """Leave `node` out, so that its readers read its first input, if `add` wrote that."""
        if node.input[0] not in self._replaced:
            return False
        self._alias[node.output[0]] = node.input[0]
        return True

    def finish(self) -> list[pb.PrimitiveProto]:
        """Put the new nodes into the graph, and return the primitives that they use."""
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        return list(self._primitives.values())

    def _reference(self, primitive: pb.PrimitiveProto) -> str:
        """How a node calls a primitive; equal ones are written once."""
        primitive.name = ""
        content = primitive.SerializeToString(deterministic=True)
        if content not in self._primitives:
            primitive.name = f"{primitive.op_type}:{len(self._primitives)}"
            self._primitives[content] = primitive
        return f"REF::{self._primitives[content].name}"

    def _input(self, value: str | Value | np.ndarray) -> str:
        """The name of an input; one that is a constant is written, once."""
        if isinstance(value, str) and value not in self._constants:
            return self._alias.get(value, value)
        constant = self._constants[value] if isinstance(value, str) else value
        if isinstance(constant, (float, np.ndarray)):
            array = np.asarray(constant, "<f4")
            constant = pb.TensorProto(
                dims=array.shape, data_type=pb.TensorProto.FLOAT, raw_data=array.tobytes()
            )
        elif isinstance(constant, Attribute) and constant.type == Attribute.TENSORS:
            constant = constant.tensors[0]
        else:
            constant = attribute("value", constant)
        content = constant.SerializeToString(deterministic=True)
        if content not in self._written:
            name = self._written[content] = f"{self._graph.name}:constant{len(self._written)}"
            if isinstance(constant, pb.TensorProto):
                self._graph.parameter.add().CopyFrom(constant)
                self._graph.parameter[-1].name = name
            else:
                self._nodes.append(
                    pb.NodeProto(op_type="Constant", name=name, output=[name], attribute=[constant])
                )
        return self._written[content]
