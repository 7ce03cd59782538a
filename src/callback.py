"""Callbacks of `Model.train` that watch it: the losses, the clock and the log lines."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

from mindspore.amp import DynamicLossScaler, LossScaler
from mindspore.train import Callback

from src.errors import UserError

log = logging.getLogger(__name__)

PATIENCE = 30.0  # seconds without a line, at most
MAX_BAD_STEPS = 10  # in a row


class Stopwatch:
    """Seconds of training: stands still while something else is done."""

    def __init__(self):
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
    """Keeps the loss of every step; ends a run whose numbers stay bad before anything else sees them.

    A step whose loss or gradients are not finite was not applied (see `TrainStep`); its loss is kept as NaN.

    Args:
        lr (Sequence[float]): the rate of each step.
        scaler (LossScaler): of the step; None in full precision.
    """

    def __init__(self, lr: Sequence[float], scaler: LossScaler | None = None):
        super().__init__()
        self.lr = lr
        self.scaler = scaler
        self.values: list[float] = []
        self.applied = 0  # steps
        self.good = False  # the newest step was applied
        self.bad = 0  # steps in a row

    @property
    def rate(self) -> float:
        """Rate of the newest step; one that was left out does not advance the schedule."""
        return float(self.lr[self.applied - self.good])

    def on_train_step_end(self, run_context):
        """Note the loss; raise `UserError` after `MAX_BAD_STEPS` bad steps in a row."""
        loss, norm = (float(output.asnumpy()) for output in run_context.original_args().net_outputs)
        good = math.isfinite(norm)
        self.values.append(loss if good else math.nan)
        self.good = good
        if good:
            self.bad = 0
            self.applied += 1
            return
        step = len(self.values)
        scale = 0.0 if self.scaler is None else float(self.scaler.scale_value.asnumpy())
        curable = isinstance(self.scaler, DynamicLossScaler) and math.isfinite(loss) and scale > 1
        self.bad += not curable  # a dynamic scale is lowered until the gradients fit
        scale = f"; the loss scale is {scale:g}" if scale else ""
        log.warning("step %d is left out: loss %g, norm of the gradients not finite%s", step, loss, scale)
        if self.bad == MAX_BAD_STEPS:
            raise UserError(
                f"the numbers of {self.bad} steps in a row, up to step {step} of {len(self.lr)}, are not "
                f"finite (learning rate {self.rate:g}); lower lr_max or loss_scale"
            )

    def mean(self, start: int) -> float:
        """Mean loss of the steps from `start`, counted from 0, without those that were left out."""
        values = [loss for loss in self.values[start:] if math.isfinite(loss)]
        return sum(values) / len(values) if values else math.nan


class StateMonitor(Callback):
    """Writes the progress of training and ends the run after the last step.

    Every epoch ends with a line; epochs longer than `log_every` steps, or half a minute, have lines in
    between, shorter ones share a line. It covers the steps since the line before: their mean loss, their time
    without compilation and evaluation, and the images a second.

    Args:
        losses (LossRecorder): stands before this callback.
        evaluation (Evaluation): stands before this callback; its accuracy goes into the line.
        clock (Stopwatch): is paused by whatever is no training.
        total_steps (int): steps of the run.
        batch_size (int): images a step over all devices.
        steps_per_epoch (int): steps that an epoch is counted as.
        log_every (int): at most one line in this many steps, besides evaluations and the ends of epochs.
    """

    def __init__(
        self,
        *,
        losses: LossRecorder,
        evaluation: Callback,
        clock: Stopwatch,
        total_steps: int,
        batch_size: int,
        steps_per_epoch: int,
        log_every: int,
    ):
        super().__init__()
        self.losses = losses
        self.evaluation = evaluation
        self.clock = clock
        self.total_steps = total_steps
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self.log_every = log_every
        self.begun = 0.0  # on the clock of the wall
        self.started = 0.0
        self.compiled = 0.0  # clock after the first step, which is compilation
        self.line = (0, 0.0)  # step and clock of the line before
        self.epoch_start = 0.0  # clock

    def on_train_begin(self, run_context):
        """Start the clock."""
        self.begun = time.perf_counter()
        self.started = self.clock.time()
        log.info("compiling; the first step follows")

    def on_train_step_end(self, run_context):
        """Write a line when it is due."""
        step, clock = len(self.losses.values), self.clock.time()
        if step == 1:
            log.info("compile time used=%.2fs", clock - self.started)
            self.compiled = self.epoch_start = clock
            self.line = (0, clock)
        if step == 2:
            seconds = (clock - self.compiled) * (self.total_steps - 1)
            log.info("about %s of training without evaluation", timedelta(seconds=round(seconds)))
        end_of_run, end_of_epoch = step == self.total_steps, step % self.steps_per_epoch == 0
        due = step - self.line[0] >= self.log_every or clock - self.line[1] >= PATIENCE
        due = due and end_of_epoch if self.steps_per_epoch < self.log_every else due or end_of_epoch
        if due or end_of_run or self.evaluation.fresh:
            self._write_line(step, clock, end_of_epoch or end_of_run)
            self.line = (step, clock)
        if end_of_epoch:
            self.epoch_start = clock
        if end_of_run:
            run_context.request_stop()

    def _write_line(self, step: int, clock: float, end_of_epoch: bool) -> None:
        per_step = (clock - self.line[1]) / max(step - max(self.line[0], 1), 1)
        if end_of_epoch:
            epoch = (step - 1) // self.steps_per_epoch
            where = f"epoch[{epoch}], epoch time: {clock - self.epoch_start:.2f}s"
        else:
            where = f"step[{step}/{self.total_steps}]"
        line = f"{where}, per step time: {per_step:.4f}s, loss={self.losses.mean(self.line[0]):.6f}"
        line += f", lr={self.losses.rate:.6f}, fps={self.batch_size / per_step if per_step else 0.0:.2f}"
        if self.evaluation.fresh:
            line += f", accuracy={self.evaluation.result['top1']:.6f}, eval_cost={self.evaluation.cost:.2f}"
        log.info("%s", line)

    def on_train_end(self, run_context):
        """Write the closing lines."""
        log.info("training time used=%.2fs", time.perf_counter() - self.begun)
        if self.evaluation.result is not None:
            log.info("last_metric[%.5f]", self.evaluation.result["top1"])
        steps, seconds = len(self.losses.values) - 1, self.line[1] - self.compiled
        log.info("ip[%s], mean_fps[%.2f]", _address(), self.batch_size * steps / seconds if seconds else 0.0)


def _address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
