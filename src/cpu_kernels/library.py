"""The built library as MindSpore's operators."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import mindspore as ms
from mindspore import ops
from mindspore.ops import signature

from src.cpu_kernels import build

Shapes = Callable[..., object]  # shapes of the inputs -> shape of the output, or a tuple of them


class Library:
    """Makes operators of the functions of the library, for this process's threads.

    Args:
        threads (int): how many share the work of an operator, the calling one included.

    Attributes:
        path: of its file, absolute.

    Raises:
        BuildError: it cannot be built, or MindSpore's oneDNN has not what it needs.
    """

    def __init__(self, threads: int):
        self.path = build.library()
        self._loaded = build.load(self.path)
        start = self._loaded.cpu_kernels_start
        start.argtypes = [ctypes.c_char_p, ctypes.c_int]
        folder = Path(ms.__file__).parent / "lib"
        if not any(start(str(path).encode(), threads) == 0 for path in sorted(folder.glob("libdnnl.so*"))):
            raise build.BuildError(f"there is no oneDNN with dnnl_sgemm in {folder}")

    def operator(self, name: str, shapes: Shapes, types: Sequence | None = None) -> ops.Custom:
        """An operator of static shapes.

        Args:
            name: of the function.
            shapes: of the outputs, from those of the inputs.
            types: of the outputs if there are several, else float32.
        """
        result = ms.float32 if types is None else tuple(types)
        return ops.Custom(f"{self.path}:{name}", shapes, lambda *_: result, func_type="aot")

    def update(self, name: str, changed: int, read: int) -> ops.Custom:
        """An operator that changes its first inputs, Parameters, in place; its output means nothing.

        Args:
            name: of the function.
            changed: number of inputs that it changes.
            read: number of the others.
        """
        operator = self.operator(name, lambda *_: [1])
        operator.add_prim_attr("side_effect_mem", True)
        kinds = [("w", signature.sig_rw.RW_WRITE)] * changed + [("r", signature.sig_rw.RW_READ)] * read
        operator.set_signatures(
            [
                signature.make_sig(f"{letter}{index}", kind, dtype=signature.sig_dtype.T)
                for index, (letter, kind) in enumerate(kinds)
            ]
        )
        return operator
