"""Makes a network fit for export: what is constant at inference is folded into the weights."""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn

from src.bit import StdConv2d
from src.encoder import EncoderBlock
from src.npz_map import STANDARDISE_EPSILON


def fold(network: nn.Cell) -> nn.Cell:
    """Standardise the filters of every `StdConv2d` once and for all; the network can no longer be trained.

    The last block of a ViT computes all tokens again: MindSpore Lite 2.0 gives other numbers for one alone.

    Args:
        network: a network of the zoo, before its first call.

    Returns:
        The same Cell.
    """
    for _, cell in network.cells_and_names():
        if isinstance(cell, StdConv2d):
            rows = cell.weight.asnumpy().astype(np.float64).reshape(cell.rows)
            rows = rows - rows.mean(1, keepdims=True)
            rows /= np.sqrt((rows**2).mean(1, keepdims=True) + STANDARDISE_EPSILON)
            cell.weight.set_data(Tensor(rows.reshape(cell.weight.shape).astype(np.float32)))
            cell.standardise = None
        elif isinstance(cell, EncoderBlock):
            cell.first_only = False
    network.set_train(False)
    return network
