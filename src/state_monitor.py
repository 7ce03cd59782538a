"""The log lines of a run, in the form that the model zoo's users know."""

from __future__ import annotations

import logging
import socket
import time
from datetime import timedelta

from mindspore.train import Callback

from src.callback import LossRecorder, Stopwatch
from src.progress import Progress

log = logging.getLogger(__name__)

PATIENCE = 30.0  # seconds without a line, at most
SLOW_DATA = 0.3  # of a step's time spent waiting for images: worth a warning
JUDGED_SECONDS = 5.0  # no warning is based on less


class StateMonitor(Callback):
    """Writes the progress of training and ends the run after the last step. Stands last.

    Every epoch ends with a line; epochs longer than `log_every` steps, or half a minute, have lines in
    between, shorter ones share a line. It covers the steps since the line before: their mean loss, their time
    without compilation and evaluation, the images a second, and the share of the time that was spent waiting
    for images.

    Args:
        progress (Progress): where the run stands.
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
        progress: Progress,
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
        self.progress = progress
        self.losses = losses
        self.evaluation = evaluation
        self.clock = clock
        self.total_steps = total_steps
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self.log_every = log_every
        self.begun = 0.0  # on the clock of the wall
        self.first = 0  # step after which this start of the run began
        self.compiled = (0.0, 0.0)  # clock and waiting after the first step, which is compilation
        self.line = (0, 0.0, 0.0)  # step, clock and waiting of the line before
        self.epoch_start = 0.0  # clock
        self.step_end = 0.0  # clock
        self.warned = False

    def on_train_begin(self, run_context):
        """Start the clock."""
        self.begun = time.perf_counter()
        self.first = self.progress.step
        self.step_end = self.clock.time()
        log.info("compiling; the first step follows")

    def on_train_step_begin(self, run_context):
        """Note how long the step could not begin."""
        self.clock.waited += self.clock.time() - self.step_end

    def on_train_step_end(self, run_context):
        """Write a line when it is due."""
        step, clock = self.progress.step, self.clock.time()
        if step == self.first + 1:
            log.info("compile time used=%.2fs", clock - self.step_end)
            self.compiled = (clock, self.clock.waited)
            self.epoch_start = clock
            self.line = (self.first, *self.compiled)
        if step == self.first + 2:
            seconds = (clock - self.compiled[0]) * (self.total_steps - step + 1)
            log.info("about %s of training without evaluation", timedelta(seconds=round(seconds)))
        end_of_run = step == self.total_steps or self.progress.stopping
        end_of_epoch = step % self.steps_per_epoch == 0
        due = step - self.line[0] >= self.log_every or clock - self.line[1] >= PATIENCE
        due = due and end_of_epoch if self.steps_per_epoch < self.log_every else due or end_of_epoch
        if due or end_of_run or self.evaluation.fresh:
            self._write_line(step, clock, end_of_epoch or step == self.total_steps)
            self.line = (step, clock, self.clock.waited)
        if end_of_epoch:
            self.epoch_start = clock
        if end_of_run:
            run_context.request_stop()
        self.step_end = self.clock.time()

    def _write_line(self, step: int, clock: float, end_of_epoch: bool) -> None:
        first, start, waited = self.line
        seconds = clock - start
        per_step = seconds / max(1, step - max(first, self.first + 1))  # the first step is compilation
        wait = (self.clock.waited - waited) / seconds if seconds else 0.0
        if end_of_epoch:
            where = (
                f"epoch[{(step - 1) // self.steps_per_epoch}], epoch time: {clock - self.epoch_start:.2f}s"
            )
        else:
            where = f"step[{step}/{self.total_steps}]"
        line = f"{where}, per step time: {per_step:.4f}s, loss={self.losses.mean(step - first):.6f}"
        line += f", lr={self.losses.rate:.6f}, fps={self.batch_size / per_step if per_step else 0.0:.2f}"
        if self.evaluation.fresh:
            line += f", accuracy={self.progress.result['top1']:.6f}, eval_cost={self.evaluation.cost:.2f}"
        log.info("%s, data_wait=%.0f%%", line, 100 * wait)
        if wait > SLOW_DATA and seconds > JUDGED_SECONDS and not self.warned:
            self.warned = True
            log.warning(
                "the images are the limit: %.0f %% of the time is spent waiting for them; raise "
                "train_num_workers, or use smaller image files",
                100 * wait,
            )

    def on_train_end(self, run_context):
        """Write the closing lines."""
        log.info("training time used=%.2fs", time.perf_counter() - self.begun)
        if self.progress.result is not None:
            log.info("last_metric[%.5f]", self.progress.result["top1"])
        steps = self.progress.step - self.first - 1
        seconds = self.line[1] - self.compiled[0]
        log.info("ip[%s], mean_fps[%.2f]", _address(), self.batch_size * steps / seconds if seconds else 0.0)
        if seconds:
            log.info("waited for images: %.0f %%", 100 * (self.clock.waited - self.compiled[1]) / seconds)


def _address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
