"""Callbacks of `Model.train`: log lines, evaluation while training, and the checkpoints that follow."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mindspore.train import Callback

from src.errors import UserError

log = logging.getLogger(__name__)


class Evaluation(Callback):
    """Evaluates every `every` steps and after the last one, and keeps the best score and its checkpoint.

    Args:
        evaluate (Callable): () -> {"top1", "top5", "samples"}; None when there is nothing to evaluate on.
        save (Callable): (path, step, result) -> None, writes a checkpoint; None when none is wanted.
        folder (Path): gets `last.ckpt` at every evaluation and at the end, and `best.ckpt` at the best top-1.
        every (int): steps between evaluations, 0 for only the last step.
        total_steps (int): steps of the whole run.
    """

    def __init__(
        self, *, evaluate: Callable | None, save: Callable | None, folder: Path, every: int, total_steps: int
    ):
        super().__init__()
        self.evaluate = evaluate
        self.save = save
        self.folder = folder
        self.every = every
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
        if not end and not (self.every and self.step % self.every == 0):
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


class StateMonitor(Callback):
    """Writes the progress of training, an epoch a line, and ends the run after the last step.

    A line covers the steps since the line before: their mean loss, their time without compilation and
    evaluation, and the images a second. Long epochs get lines in between, short ones share a line.

    Args:
        evaluation (Evaluation): stands before this callback; its accuracy goes into the line.
        lr (Sequence[float]): the rate of each step.
        batch_size (int): images a step over all devices.
        steps_per_epoch (int): steps that an epoch is counted as.
        log_every (int): at most one line in this many steps, besides evaluations and the end.
    """

    def __init__(
        self,
        *,
        evaluation: Evaluation,
        lr: Sequence[float],
        batch_size: int,
        steps_per_epoch: int,
        log_every: int,
    ):
        super().__init__()
        self.evaluation = evaluation
        self.lr = lr
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self.log_every = log_every
        self.losses: list[float] = []  # of every step
        self.fps: list[float] = []  # of every line
        self.started = 0.0
        self.line = (0, 0.0)  # step and clock of the line before
        self.epoch = (0, 0.0)  # step and clock of the epoch's start

    def _clock(self) -> float:
        """Seconds of training: stands still during evaluations."""
        return time.perf_counter() - self.evaluation.paused

    def on_train_begin(self, run_context):
        """Start the clock."""
        self.started = self._clock()

    def on_train_step_end(self, run_context):
        """Note the loss, and write a line when it is due."""
        loss = float(run_context.original_args().net_outputs.asnumpy())
        self.losses.append(loss)
        step, clock = len(self.losses), self._clock()
        if step == 1:
            log.info("compile time used=%.2fs", clock - self.started)
            self.line = self.epoch = (0, clock)
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is {loss} at step {step} of {len(self.lr)} (learning rate {self.lr[step - 1]:g}); "
                "lower lr_max or lengthen the warm-up"
            )
        end_of_run, end_of_epoch = step == len(self.lr), step % self.steps_per_epoch == 0
        if end_of_run or self.evaluation.fresh or step - self.line[0] >= self.log_every:
            self._write_line(step, clock, end_of_epoch or end_of_run)
            self.line = (step, clock)
        if end_of_epoch:
            self.epoch = (step, clock)
        if end_of_run:
            run_context.request_stop()

    def _write_line(self, step: int, clock: float, end_of_epoch: bool) -> None:
        timed = step - max(self.line[0], 1)  # the first step is compilation
        per_step = (clock - self.line[1]) / max(timed, 1)
        fps = self.batch_size / per_step if timed else 0.0
        if timed:
            self.fps.append(fps)
        losses = self.losses[self.line[0] :]
        loss = sum(losses) / len(losses)
        if end_of_epoch:
            where = f"epoch[{(step - 1) // self.steps_per_epoch}], epoch time: {clock - self.epoch[1]:.2f}s"
        else:
            where = f"step[{step}/{len(self.lr)}]"
        line = f"{where}, per step time: {per_step:.4f}s, loss={loss:.6f}, lr={self.lr[step - 1]:.6f}"
        line += f", fps={fps:.2f}"
        if self.evaluation.fresh:
            line += f", accuracy={self.evaluation.result['top1']:.6f}, eval_cost={self.evaluation.cost:.2f}"
        log.info("%s", line)

    def on_train_end(self, run_context):
        """Write the closing lines."""
        log.info("training time used=%.2fs", time.perf_counter() - self.started)
        if self.evaluation.result is not None:
            log.info("last_metric[%.5f]", self.evaluation.result["top1"])
        mean_fps = sum(self.fps) / len(self.fps) if self.fps else 0.0
        log.info("ip[%s], mean_fps[%.2f]", _address(), mean_fps)


def _address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
