"""Callbacks of `Model.train`: log lines, evaluation while training, and the checkpoints that follow."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from mindspore.amp import DynamicLossScaler, LossScaler
from mindspore.train import Callback

from src.errors import UserError

log = logging.getLogger(__name__)

PATIENCE = 30.0  # seconds without a line, at most
MAX_BAD_STEPS = 10  # in a row


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
        self.bad = 0  # steps in a row

    def on_train_step_end(self, run_context):
        """Note the loss; raise `UserError` after `MAX_BAD_STEPS` bad steps in a row."""
        loss, norm = (float(output.asnumpy()) for output in run_context.original_args().net_outputs)
        good = math.isfinite(norm)
        self.values.append(loss if good else math.nan)
        if good:
            self.bad = 0
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
                f"finite (learning rate {self.lr[step - 1]:g}); lower lr_max or loss_scale"
            )

    def mean(self, start: int) -> float:
        """Mean loss of the steps from `start`, counted from 0, without those that were left out."""
        values = [loss for loss in self.values[start:] if math.isfinite(loss)]
        return sum(values) / len(values) if values else math.nan


class Evaluation(Callback):
    """Evaluates every `every` steps and after the last one, and keeps the best score and its checkpoint.

    Args:
        evaluate (Callable): () -> {"top1", "top5", "samples"}; None when there is nothing to evaluate on.
        save (Callable): (path, step, result) -> None, writes a checkpoint; None when none is wanted.
        folder (Path): gets `last.ckpt` at every evaluation and at the end, and `best.ckpt` at the best top-1.
        due (Callable): step, from 1 -> whether to evaluate and save after it; the last step always is.
        total_steps (int): steps of the whole run.
    """

    def __init__(
        self,
        *,
        evaluate: Callable | None,
        save: Callable | None,
        folder: Path,
        due: Callable,
        total_steps: int,
    ):
        super().__init__()
        self.evaluate = evaluate
        self.save = save
        self.folder = folder
        self.due = due
        self.total_steps = total_steps
        self.step = 0
        self.result: dict | None = None  # of the newest evaluation
        self.best: dict | None = None
        self.cost = 0.0  # seconds of the newest evaluation
        self.paused = 0.0  # seconds of the run that were not training
        self.fresh = False  # evaluated in this very step

    def on_train_step_end(self, run_context):
        """Evaluate and save when it is due."""
        self.step += 1
        end = self.step == self.total_steps
        self.fresh = False
        if not end and not self.due(self.step):
            return
        start = time.perf_counter()
        if self.evaluate is not None:
            self.result = self.evaluate()
            self.cost = time.perf_counter() - start
            self.fresh = True
        if self.save is not None:
            self.save(self.folder / "last.ckpt", self.step, self.result)
        if self.fresh and (self.best is None or self.result["top1"] > self.best["top1"]):
            self.best = {**self.result, "step": self.step}
            if self.save is not None:
                self.save(self.folder / "best.ckpt", self.step, self.result)
        self.paused += time.perf_counter() - start


class EveryEpochs(Callback):
    """Calls `action(epoch)`, from 1, after every `epochs`-th epoch of `steps_per_epoch` steps."""

    def __init__(self, action: Callable[[int], None], *, epochs: int, steps_per_epoch: int):
        super().__init__()
        self.action = action
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.step = 0

    def on_train_step_end(self, run_context):
        """Call the action when it is due."""
        self.step += 1
        epoch, rest = divmod(self.step, self.steps_per_epoch)
        if not rest and epoch % self.epochs == 0:
            self.action(epoch)


class KeptCheckpoints:
    """Saves `<prefix>-<epoch>_<steps per epoch>.ckpt`, as `ModelCheckpoint` does, and removes the oldest.

    Args:
        save (Callable): (path, step, result) -> None, writes a checkpoint.
        folder (Path): where they go.
        prefix (str): the network's name.
        steps_per_epoch (int): steps that an epoch is counted as.
        keep_max (int): how many stay.
    """

    def __init__(self, *, save: Callable, folder: Path, prefix: str, steps_per_epoch: int, keep_max: int):
        self.save = save
        self.folder = folder
        self.prefix = prefix
        self.steps_per_epoch = steps_per_epoch
        self.keep_max = keep_max
        self.kept: list[Path] = []

    def __call__(self, epoch: int) -> None:
        """Save the checkpoint of an epoch."""
        path = self.folder / f"{self.prefix}-{epoch}_{self.steps_per_epoch}.ckpt"
        self.save(path, epoch * self.steps_per_epoch, None)
        self.kept.append(path)
        if len(self.kept) > self.keep_max:
            self.kept.pop(0).unlink(missing_ok=True)


class StateMonitor(Callback):
    """Writes the progress of training and ends the run after the last step.

    Every epoch ends with a line; epochs longer than `log_every` steps, or half a minute, have lines in
    between, shorter ones share a line. It covers the steps since the line before: their mean loss, their time
    without compilation and evaluation, and the images a second.

    Args:
        losses (LossRecorder): stands before this callback.
        evaluation (Evaluation): stands before this callback; its accuracy goes into the line.
        lr (Sequence[float]): the rate of each step.
        batch_size (int): images a step over all devices.
        steps_per_epoch (int): steps that an epoch is counted as.
        log_every (int): at most one line in this many steps, besides evaluations and the ends of epochs.
    """

    def __init__(
        self,
        *,
        losses: LossRecorder,
        evaluation: Evaluation,
        lr: Sequence[float],
        batch_size: int,
        steps_per_epoch: int,
        log_every: int,
    ):
        super().__init__()
        self.losses = losses
        self.evaluation = evaluation
        self.lr = lr
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self.log_every = log_every
        self.started = 0.0
        self.compiled = 0.0  # clock after the first step, which is compilation
        self.line = (0, 0.0)  # step and clock of the line before
        self.epoch_start = 0.0  # clock

    def _clock(self) -> float:
        """Seconds of training: stands still during evaluations."""
        return time.perf_counter() - self.evaluation.paused

    def on_train_begin(self, run_context):
        """Start the clock."""
        self.started = self._clock()
        log.info("compiling; the first step follows")

    def on_train_step_end(self, run_context):
        """Write a line when it is due."""
        step, clock = len(self.losses.values), self._clock()
        if step == 1:
            log.info("compile time used=%.2fs", clock - self.started)
            self.compiled = self.epoch_start = clock
            self.line = (0, clock)
        if step == 2:
            seconds = (clock - self.compiled) * (len(self.lr) - 1)
            log.info("about %s of training without evaluation", timedelta(seconds=round(seconds)))
        end_of_run, end_of_epoch = step == len(self.lr), step % self.steps_per_epoch == 0
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
            where = f"step[{step}/{len(self.lr)}]"
        line = f"{where}, per step time: {per_step:.4f}s, loss={self.losses.mean(self.line[0]):.6f}"
        line += f", lr={self.lr[step - 1]:.6f}, fps={self.batch_size / per_step if per_step else 0.0:.2f}"
        if self.evaluation.fresh:
            line += f", accuracy={self.evaluation.result['top1']:.6f}, eval_cost={self.evaluation.cost:.2f}"
        log.info("%s", line)

    def on_train_end(self, run_context):
        """Write the closing lines."""
        log.info("training time used=%.2fs", time.perf_counter() - self.started)
        if self.evaluation.result is not None:
            log.info("last_metric[%.5f]", self.evaluation.result["top1"])
        steps, seconds = len(self.losses.values) - 1, self.line[1] - self.compiled
        log.info("ip[%s], mean_fps[%.2f]", _address(), self.batch_size * steps / seconds if seconds else 0.0)


def _address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
