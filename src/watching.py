"""Callbacks that show a run: `metrics.csv`, its curves, TensorBoard events, the bar on the terminal."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from mindspore.train import Callback
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from src.callback import LossRecorder, Stopwatch
from src.curves import draw_curves
from src.events_file import EventsFile
from src.metrics_file import MetricsFile, Row
from src.progress import Progress

METRICS = "metrics.csv"


class Metrics(Callback):
    """Writes a row for every step, and draws the curves at every evaluation and at the end, in a thread.

    Stands after `Evaluation` and before `Checkpoints`: what a checkpoint counts is in the file.

    Args:
        progress (Progress): where the run stands.
        losses (LossRecorder): stands before this callback.
        evaluation (Evaluation): likewise.
        clock (Stopwatch): of training.
        folder (Path): of the run.
        before (Path): where a resumed run was; None for a new one.
        title (str): of the picture.
        batch_size (int): images a step over all devices.
        steps_per_epoch (int): steps that an epoch is counted as.
        tensorboard (bool): write events into `tensorboard/`, too: evaluations and every so many steps.
        log_every (int): so many.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        losses: LossRecorder,
        evaluation: Callback,
        clock: Stopwatch,
        folder: Path,
        before: Path | None,
        title: str,
        batch_size: int,
        steps_per_epoch: int,
        tensorboard: bool,
        log_every: int,
    ):
        super().__init__()
        self.progress = progress
        self.losses = losses
        self.evaluation = evaluation
        self.clock = clock
        self.picture = folder / "curves.png"
        self.title = title
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self.log_every = log_every
        self.drawn = 0  # rows
        self.drawing: threading.Thread | None = None
        self.before: tuple[float, float] | None = None  # clock and waiting at the end of the last step
        self.file = MetricsFile(folder / METRICS, progress.step, before and before / METRICS)
        self.events = EventsFile(folder / "tensorboard", progress.step) if tensorboard else None

    def on_train_begin(self, run_context):
        """Write the evaluation that was made up for."""
        if self.evaluation.fresh:
            self._write(Row(self.progress.step, self._epoch(), **self._accuracy()), self.file.amend)

    def on_train_step_end(self, run_context):
        """Write the row of the step."""
        now = (self.clock.time(), self.clock.waited)
        speed = {}
        if self.before is not None:  # the first step is compilation
            seconds, wait = now[0] - self.before[0], now[1] - self.before[1]
            speed = {"images_per_second": self.batch_size / seconds, "data_wait": wait / seconds}
        self._write(
            Row(
                self.progress.step,
                self._epoch(),
                loss=self.losses.values[-1],
                gradient_norm=self.losses.norm,
                learning_rate=self.losses.rate,
                **speed,
                **self._accuracy(),
            )
        )
        self.before = (self.clock.time(), self.clock.waited)

    def close(self) -> None:
        """Draw the curves of whatever was trained, and close the files."""
        if len(self.file.rows) > self.drawn:
            self._draw()
        if self.drawing is not None:
            self.drawing.join()
        self.file.close()
        if self.events is not None:
            self.events.close()

    def _epoch(self) -> int:
        return max(0, self.progress.step - 1) // self.steps_per_epoch

    def _accuracy(self) -> dict:
        if not self.evaluation.fresh:
            return {}
        return {key: self.progress.result[key] for key in ("top1", "top5")}

    def _write(self, row: Row, put: Callable[[Row], None] | None = None) -> None:
        (put or self.file.append)(row)
        if self.events is not None and (row.top1 is not None or row.step % self.log_every == 0):
            self.events.append(row)
        if row.top1 is not None:
            self._draw()

    def _draw(self) -> None:
        if self.drawing is not None:
            self.drawing.join()
        rows = list(self.file.rows)
        self.drawn = len(rows)
        self.drawing = threading.Thread(target=draw_curves, args=(self.picture, rows, self.title))
        self.drawing.start()


class ProgressBar(Callback):
    """A bar on standard error: steps, loss, rate, speed, waiting. The log lines scroll above it."""

    def __init__(
        self, progress: Progress, *, losses: LossRecorder, clock: Stopwatch, total_steps: int, batch_size: int
    ):
        super().__init__()
        self.progress = progress
        self.losses = losses
        self.clock = clock
        self.batch_size = batch_size
        self.bar = tqdm(
            total=total_steps, initial=progress.step, unit="step", dynamic_ncols=True, leave=False
        )
        self.begun = (0.0, 0.0)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show it in the block."""
        with logging_redirect_tqdm([logging.getLogger("src")]), self.bar:
            yield

    def on_train_step_end(self, run_context):
        """Move on."""
        if self.bar.n == self.bar.initial:
            self.bar.unpause()  # the first step is compilation
            self.begun = (self.clock.time(), self.clock.waited)
        seconds = self.clock.time() - self.begun[0]
        steps = self.progress.step - self.bar.initial - 1
        if steps and seconds:
            self.bar.set_postfix_str(
                f"loss {self.losses.mean(50):.4f}, lr {self.losses.rate:.2g}, "
                f"{steps * self.batch_size / seconds:.0f} images/s, "
                f"{100 * (self.clock.waited - self.begun[1]) / seconds:.0f} % waiting",
                refresh=False,
            )
        self.bar.update(self.progress.step - self.bar.n)
