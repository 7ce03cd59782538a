"""Stands in for `Model.train`: calls callbacks with the outputs of made-up steps."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np


class Output(float):
    def asnumpy(self):
        return np.float32(self)


def context_of(loss, *, asked=0, stopped=None):
    """The context of a step with this loss, whose norm is not finite when the loss is not."""
    outputs = (Output(loss), Output(1.0 if math.isfinite(loss) else math.inf), Output(asked))
    return SimpleNamespace(
        original_args=lambda: SimpleNamespace(net_outputs=outputs), request_stop=lambda: stopped.append(True)
    )


def run_steps(callbacks, losses, *, asked=()):
    """Begin, take a step for each loss until a callback asks for the end, and end; returns their number."""
    stopped, steps = [], 0
    for callback in callbacks:
        callback.on_train_begin(None)
    for steps, loss in enumerate(losses, start=1):
        context = context_of(loss, asked=steps in asked, stopped=stopped)
        for callback in callbacks:
            callback.on_train_step_begin(context)
        for callback in callbacks:
            callback.on_train_step_end(context)
        if stopped:
            break
    for callback in callbacks:
        callback.on_train_end(None)
    return steps
