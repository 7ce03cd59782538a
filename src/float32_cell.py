"""The base of Cells whose arithmetic must not be lowered: norms, softmax, weight standardisation."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn


class Float32Cell(nn.Cell):
    """A Cell whose own arithmetic stays in float32 under every amp level.

    `Cell.to_float` and `amp.auto_mixed_precision` mark Cells with the flags fp16 or bf16; this one answers
    with fp32 and keeps the type that was asked for in `compute_dtype`, for the one operator that may run in
    it.
    """

    def __init__(self):
        super().__init__()
        self.compute_dtype = ms.float32

    def add_flags_recursive(self, **flags):
        """Take the flags of `Cell.to_float`, but stay in float32."""
        for flag, dtype in (("fp16", ms.float16), ("bf16", ms.bfloat16), ("fp32", ms.float32)):
            if flags.get(flag):
                self.compute_dtype = dtype
        if "fp32" in flags:
            flags = {**flags, "fp16": False, "bf16": False, "fp32": True}
        return super().add_flags_recursive(**flags)
