"""Networks as ONNX: builds the graph from a network's name and weights, and writes it.

Not a converter of MindSpore's graphs: its own stops at operator set 11, without Erf, GroupNorm and Rsqrt.
The batch is free; the size of the image is fixed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from src.atomic import replacing
from src.errors import UserError
from src.npz_map import BIT_ARCHITECTURES
from src.onnx_bit import add_bit
from src.onnx_builder import GraphBuilder, import_onnx
from src.onnx_vit import add_vit
from src.vit_map import VIT_ARCHITECTURES

if TYPE_CHECKING:
    import onnx

MAX_BYTES = 2**31 - 2**20  # protobuf holds no message of 2 GiB; a MiB is left for the nodes
INLINE_BYTES = 1024  # shapes and scalars stay in the graph, whose readers infer shapes from them
PAGE = 4096  # arrays begin where a reader can map them into memory


def build_onnx(
    name: str, weights: Mapping[str, np.ndarray], *, image_size: tuple[int, int], arguments: Mapping
) -> onnx.ModelProto:
    """Build the graph of a network, from `image` (N, 3, H, W) to `logits` (N, K), float32, for any N.

    Args:
        name: the zoo's name.
        weights: float32 arrays under the names of the network's Parameters; BiT's filters standardised, as
            `src/fold.py` leaves them.
        image_size: height and width in pixels.
        arguments: what `describe(network)` of `src/network.py` says of the network.

    Returns:
        The `onnx.ModelProto`; it is larger than a message may be when the weights are, see `write_onnx`.

    Raises:
        UserError: the onnx package is not installed.
        ValueError: the name is unknown, a weight is missing, left over or of another shape, or the grid is
            that of another image.
    """
    graph = GraphBuilder(weights)
    if name in BIT_ARCHITECTURES:
        units, width = BIT_ARCHITECTURES[name]
        class_num = add_bit(graph, units=units, width=width, image_size=image_size, **arguments)
    elif name in VIT_ARCHITECTURES:
        sizes = dict(zip(("patch_size", "dim", "depth", "heads", "mlp_dim"), VIT_ARCHITECTURES[name]))
        if [side * sizes["patch_size"] for side in arguments["grid"]] != list(image_size):
            raise ValueError(
                f"{name} for images of {image_size} pixels has no grid of {arguments['grid']} patches"
            )
        class_num = add_vit(graph, **sizes, **arguments)
    else:
        raise ValueError(f"no network is called {name!r}")
    return graph.finish(name, image_size=image_size, class_num=class_num)


def write_onnx(model: onnx.ModelProto, path: str | os.PathLike, *, max_bytes: int = MAX_BYTES) -> None:
    """Write a model, whole or not at all. Missing folders are created.

    Above 2 GiB the arrays go into a second file beside it, `<path>.data`, which the first names: keep them
    together and do not rename the second. One that an earlier export left is replaced or removed.

    Args:
        model: what `build_onnx` returned; is not changed.
        path: of the `.onnx` file.
        max_bytes: the arrays of a single file.

    Raises:
        UserError: the files cannot be written (disk full, no permission).
    """
    path = Path(path)
    data = path.with_name(f"{path.name}.data")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= max_bytes:
            with replacing(path) as stream:
                stream.write(model.SerializeToString())
            data.unlink(missing_ok=True)
            return
        with replacing(path) as stream, replacing(data) as arrays:
            stream.write(_move_arrays(model, arrays, data.name).SerializeToString())
            for file in (stream, arrays):
                file.flush()
                os.fsync(file.fileno())
            path.unlink(missing_ok=True)  # never an old graph beside new arrays
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {path}: {reason}; choose another place or free space") from None


def _move_arrays(model: onnx.ModelProto, stream: BinaryIO, location: str) -> onnx.ModelProto:
    """Write the arrays to `stream` and return the model with references to them, in the file `location`."""
    onnx = import_onnx()
    graph = onnx.GraphProto(
        name=model.graph.name, node=model.graph.node, input=model.graph.input, output=model.graph.output
    )
    for tensor in model.graph.initializer:
        raw = tensor.raw_data
        if len(raw) < INLINE_BYTES:
            graph.initializer.append(tensor)
            continue
        stream.write(bytes(-stream.tell() % PAGE))
        place = {"location": location, "offset": stream.tell(), "length": len(raw)}
        stream.write(raw)
        reference = graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
        reference.data_location = onnx.TensorProto.EXTERNAL
        for key, value in place.items():
            reference.external_data.add(key=key, value=str(value))
    return onnx.ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        producer_name=model.producer_name,
        doc_string=model.doc_string,
        metadata_props=model.metadata_props,
        graph=graph,
    )
