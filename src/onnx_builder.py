"""Collects the nodes and arrays of an ONNX graph, and hands out each weight once. Knows no network.

The `onnx` package is imported when a graph is built. MindSpore must have been imported before it, where both
are wanted: it sets up protobuf for its own files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import ModuleType

import numpy as np

from src.errors import UserError

IMAGE, LOGITS = "image", "logits"  # the input (N, 3, H, W) and the output (N, K)
PRODUCER = "BiT and ViT for MindSpore"
OPSET = 17  # the first with LayerNormalization; onnxruntime 1.12 (2022), TensorRT 8.6 and later read it
IR_VERSION = 8  # what came with opset 17: the package's own default shuts out runtimes of its time


def import_onnx() -> ModuleType:
    """Import the `onnx` package.

    Raises:
        UserError: it is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise UserError(
            f"ONNX files want the onnx package ({error}): pip install -r requirements-onnx.txt"
        ) from None
    return onnx


class GraphBuilder:
    """A graph in the making. Values are referred to by name, as in ONNX.

    Args:
        weights: name -> float32 array, all to be used.
    """

    def __init__(self, weights: Mapping[str, np.ndarray]):
        self._onnx = import_onnx()
        self._weights = dict(weights)
        self._constants = {}
        self._nodes = []
        self._names = Counter()

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Take a weight out, so that nobody can take it again.

        Args:
            name: of the Parameter.
            *shape: what it must have; -1 where any size will do.

        Raises:
            ValueError: it is missing or used up, or has another shape or type.
        """
        if name not in self._weights:
            raise ValueError(f"the graph wants {name}, which the weights lack or which is in use already")
        array = self._weights.pop(name)
        fits = len(array.shape) == len(shape) and all(w in (-1, f) for w, f in zip(shape, array.shape))
        if not fits or array.dtype != np.float32:
            raise ValueError(f"{name} is {array.shape} {array.dtype}; the graph wants {shape} float32")
        return array

    def constant(self, name: str, array: np.ndarray) -> str:
        """Keep an array in the file; one name stands for one array, however often it is given."""
        self._constants.setdefault(name, array)
        return name

    def scalar(self, value: float) -> str:
        """A float32 constant without axes."""
        return self.constant(f"scalar_{value:.9g}", np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """An int64 vector: a shape, pads or an index."""
        return self.constant("integers_" + "_".join(map(str, values)), np.array(values, np.int64))

    def add(self, op: str, *inputs: str, scope: str, **attributes) -> str:
        """Append a node with one output.

        Args:
            op: the operator, such as `MatMul`.
            *inputs: names of values.
            scope: where in the network; node and output are named after it.
            **attributes: of the operator.

        Returns:
            The name of the output.
        """
        name = f"{scope}/{op}"
        self._names[name] += 1
        if self._names[name] > 1:
            name = f"{name}_{self._names[name]}"
        self._nodes.append(self._onnx.helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def finish(self, name: str, *, image_size: tuple[int, int], class_num: int):
        """Return the `onnx.ModelProto`, whose output is that of the last node.

        Args:
            name: of the network.
            image_size: height and width of the input in pixels.
            class_num: number of logits, K.

        Raises:
            ValueError: weights are left over.
        """
        if self._weights:
            unused = ", ".join(sorted(self._weights)[:5])
            raise ValueError(f"{len(self._weights)} weights have no place in the graph: {unused}")
        helper, float32 = self._onnx.helper, self._onnx.TensorProto.FLOAT
        self._nodes[-1].output[0] = LOGITS
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(IMAGE, float32, ["N", 3, *image_size])],
            [helper.make_tensor_value_info(LOGITS, float32, ["N", class_num])],
        )
        height, width = image_size
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name=PRODUCER,
            doc_string=f"{name}, {class_num} classes, images of {height} x {width} pixels, any batch",
        )
        helper.set_model_props(model, {"network": name, "class_num": str(class_num)})
        for key, array in self._constants.items():  # one by one: make_graph and make_model copy what they get
            model.graph.initializer.append(self._onnx.numpy_helper.from_array(array, key))
        return model
