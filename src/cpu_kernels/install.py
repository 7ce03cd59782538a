"""Decides whether the compiled operators are used, and puts them into networks and training steps."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Callable

from mindspore import nn

from src import bit_operators, optimizer, train_step, vit_operators
from src.cpu_kernels import bit_cells, build, plain_cells, update_cells, vit_cells
from src.cpu_kernels.library import Library

log = logging.getLogger(__name__)

COMPILED = {
    bit_operators.Convolution: bit_cells.Convolution,
    bit_operators.GroupNormRelu: bit_cells.GroupNormRelu,
    bit_operators.Standardise: bit_cells.Standardise,
    bit_operators.ZeroPadMaxPool: bit_cells.ZeroPadMaxPool,
    optimizer.AdamWUpdate: update_cells.AdamWUpdate,
    optimizer.MomentumUpdate: update_cells.MomentumUpdate,
    train_step.SquareSum: update_cells.SquareSum,
    vit_operators.Gelu: vit_cells.Gelu,
    vit_operators.HeadsAttention: vit_cells.HeadsAttention,
    vit_operators.LayerNorm: vit_cells.LayerNorm,
    vit_operators.Linear: vit_cells.Linear,
    vit_operators.PatchLinear: vit_cells.PatchLinear,
}

NOT_COMPILED = {  # MindSpore's operators in another arrangement
    bit_operators.GroupNormRelu: plain_cells.GroupNormRelu,
    bit_operators.ZeroPadMaxPool: plain_cells.ZeroPadMaxPool,
}


def install_cpu_kernels(
    *roots: nn.Cell, wanted: bool, device_target: str, device_num: int = 1, amp_level: str = "O0"
) -> Path | None:
    """Let the Cells below `roots` compute with compiled operators, if that can be; says in the log if not.

    Without them the Cells of `NOT_COMPILED` take the place of those that MindSpore computes slowly on a CPU.
    Parameters and checkpoints stay as they are. What is exported must not come here: an operator of this
    machine would be in the file.

    Args:
        *roots: networks, training steps, before their first call.
        wanted: whether the user wants compiled operators.
        device_target: they are for CPU.
        device_num: ranks of the run; they share the cores.
        amp_level: they are for full precision, O0.

    Returns:
        The file of the operators; None if they are not used.
    """
    if device_target != "CPU":
        return None
    if amp_level != "O0":
        if wanted:
            log.info("cpu_kernels: MindSpore's own operators are used, since amp_level is %s", amp_level)
        return None
    library = _library(device_num) if wanted else None
    makers = NOT_COMPILED
    if library is not None:
        makers = {plain: partial(cell, library) for plain, cell in COMPILED.items()}
    for root in roots:
        _replace(makers, root)
    return library and library.path


def _library(device_num: int) -> Library | None:
    try:
        return Library(max(1, len(os.sched_getaffinity(0)) // device_num))
    except build.BuildError as error:
        build.tell(error)
        return None


def _replace(makers: Mapping[type, Callable[[nn.Cell], nn.Cell]], root: nn.Cell) -> None:
    for _, cell in list(root.cells_and_names()):
        for name, child in list(cell.name_cells().items()):
            if type(child) in makers and getattr(child, "dropout", None) is None:
                setattr(cell, name, makers[type(child)](child))
