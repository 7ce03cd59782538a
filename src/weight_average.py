"""The exponential moving average of a network's weights, as a second network."""

from __future__ import annotations

import copy

import numpy as np
from mindspore import nn

PREFIX = "average."


class WeightAverage:
    """A copy of a network whose weights follow those of the first: a += (1 - d) * (w - a), once a step.

    The decay of step t, from 1, is d = min(decay, (1 + t) / (10 + t)), so that the first weights are soon
    forgotten (TensorFlow's `ExponentialMovingAverage` with `num_updates`). `TrainStep` does it.

    Args:
        network (Cell): before its first call, with the weights that the average starts from.
        decay (float): from 0 to below 1.
        steps (int): of the run.
    """

    def __init__(self, network: nn.Cell, decay: float, steps: int):
        self.network = copy.deepcopy(network)
        for param in self.network.get_parameters():  # a graph that holds both needs different names
            param.name = PREFIX + param.name
            param.requires_grad = False
        t = np.arange(1, steps + 1)
        self.shares = (1 - np.minimum(decay, (1 + t) / (10 + t))).astype(np.float32)
