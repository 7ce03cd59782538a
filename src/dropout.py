"""Dropout whose masks can be made again: a function of the seed, the layer and the number of the call.

MindSpore's kernels keep a state that no checkpoint can hold, and the one for CPUs shares it between threads,
so that no two runs agree. Here the bits are a hash of the position in the tensor, in the manner of
counter-based generators (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from src.streams import DROPOUT

CALLS = "dropout_calls"


class Dropout(nn.Cell):
    """Zeroes elements with probability p while training, and divides the others by 1 - p.

    Until `seed_dropout` has seen it, it is `nn.Dropout`.

    Args:
        p (float): probability of a zero, from 0 to below 1.

    Inputs:
        x (Tensor): shape (N, ...).

    Outputs:
        Tensor of the same shape and type.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p
        self.unseeded = nn.Dropout(p=p)
        self.threshold = round(p * 2**32) - 2**31  # of int32
        self.key: Tensor | None = None
        self.calls: tuple[Parameter, ...] = ()  # in a tuple, since it is no Parameter of the network

    def construct(self, x):
        if not self.training:
            return x
        if self.key is None:
            return self.unseeded(x)
        key = _mix(_mix(self.key + self.calls[0]))
        rows = _mix(ops.arange(0, x.shape[0], 1, dtype=ms.int32)) + key
        columns = _mix(ops.arange(1, x.size // x.shape[0] + 1, 1, dtype=ms.int32))
        bits = _mix(rows.reshape(-1, 1) + columns).reshape(x.shape)  # (N, 1), (D) -> (N, D) -> (N, ...)
        return x * ops.cast(bits >= self.threshold, x.dtype) * (1.0 / (1.0 - self.p))


def seed_dropout(network: nn.Cell, seed: int, rank: int) -> Parameter | None:
    """Give every Dropout of a network its own masks, different on each rank.

    Returns:
        int32 of shape (), the number of calls so far, for the training step to advance; None without Dropout.
    """
    cells = [cell for _, cell in network.cells_and_names() if isinstance(cell, Dropout)]
    if not cells:
        return None
    calls = Parameter(Tensor(0, ms.int32), name=CALLS, requires_grad=False)
    keys = np.random.default_rng((seed, DROPOUT, rank)).integers(-(2**31), 2**31, len(cells))
    for cell, key in zip(cells, keys):
        cell.key, cell.calls = Tensor(key, ms.int32), (calls,)
    return calls


def _mix(x: Tensor) -> Tensor:
    """A hash of int32 whose every output bit depends on every input bit ("lowbias32" of C. Wellons, 2018)."""
    x = ops.bitwise_xor(x, _right(x, 16)) * 0x7FEB352D
    x = ops.bitwise_xor(x, _right(x, 15)) * (0x846CA68B - 2**32)
    return ops.bitwise_xor(x, _right(x, 16))


def _right(x: Tensor, places: int) -> Tensor:
    return ops.bitwise_and(ops.bitwise_right_shift(x, places), 2 ** (32 - places) - 1)
