"""Callbacks of `Model.train` that watch it: the clock and the losses."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Sequence

from mindspore.amp import DynamicLossScaler, LossScaler
from mindspore.train import Callback

from src.errors import UserError
from src.progress import Progress

log = logging.getLogger(__name__)


class Stopwatch:
    """Seconds of training: stands still while something else is done.

    Attributes:
        waited: seconds of them in which a step could not begin for want of images.
    """

    def __init__(self):
        self.waited = 0.0
        self._paused = 0.0

    def time(self) -> float:
        """Return seconds that only differences of mean something."""
        return time.perf_counter() - self._paused

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the block out."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - start


class LossRecorder(Callback):
    """Keeps the losses; ends a run whose numbers stay bad before anything else sees them.

    A step whose loss or gradients are not finite was not applied (see `TrainStep`); its loss is kept as NaN.

    Args:
        progress (Progress): is counted on.
        lr (Sequence[float]): the rate of each step.
        scaler (LossScaler): of the step; None in full precision.
        max_bad (int): bad steps in a row that end the run.
    """

    def __init__(
        self, progress: Progress, lr: Sequence[float], *, scaler: LossScaler | None = None, max_bad: int = 10
    ):
        super().__init__()
        self.progress = progress
        self.lr = lr
        self.scaler = scaler
        self.max_bad = max_bad
        self.values: list[float] = []  # since this start of the run
        self.norm = 0.0  # of the newest gradients
        self.good = False  # the newest step was applied

    @property
    def rate(self) -> float:
        """Rate of the newest step; one that was left out does not advance the schedule."""
        return float(self.lr[self.progress.applied - self.good])

    def on_train_step_end(self, run_context):
        """Note the loss; raise `UserError` after `max_bad` bad steps in a row."""
        loss, norm = (float(output.asnumpy()) for output in run_context.original_args().net_outputs[:2])
        self.norm, self.good = norm, math.isfinite(norm)
        self.values.append(loss if self.good else math.nan)
        self.progress.step += 1
        if self.good:
            self.progress.bad = 0
            self.progress.applied += 1
            return
        step = self.progress.step
        scale = 0.0 if self.scaler is None else float(self.scaler.scale_value.asnumpy())
        curable = isinstance(self.scaler, DynamicLossScaler) and math.isfinite(loss) and scale > 1
        self.progress.bad += not curable  # a dynamic scale is lowered until the gradients fit
        scale = f"; the loss scale is {scale:g}" if scale else ""
        log.warning("step %d is left out: loss %g, norm of the gradients not finite%s", step, loss, scale)
        if self.progress.bad >= self.max_bad:
            raise UserError(
                f"the numbers of {self.progress.bad} steps in a row, up to step {step} of {len(self.lr)}, "
                f"are not finite (learning rate {self.rate:g}); lower lr_max or "
                "loss_scale, and go on from the last checkpoint"
            )

    def mean(self, count: int) -> float:
        """Mean loss of the newest `count` steps, without those that were left out."""
        values = [loss for loss in self.values[-count:] if math.isfinite(loss)]
        return sum(values) / len(values) if values else math.nan
