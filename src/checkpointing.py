"""Callbacks of `Model.train` that do something now and then: evaluations, checkpoints, uploads."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path

from mindspore.train import Callback

from src.callback import Stopwatch
from src.errors import UserError
from src.progress import Progress
from src.weight_file import SUFFIXES

log = logging.getLogger(__name__)


class Evaluation(Callback):
    """Evaluates when it is due and after the last step. One that a stop prevents is made up for on resuming.

    Args:
        progress (Progress): gets the newest and the best result.
        evaluate (Callable): () -> {"top1", "top5", "samples"}, or None when the run was told to stop
            meanwhile; None when there is nothing to evaluate on.
        due (Callable): step, from 1 -> whether to evaluate and save after it; the last step always is.
        total_steps (int): steps of the whole run.
        clock (Stopwatch): stands still meanwhile.

    Attributes:
        due_now: an evaluation belongs to this very step.
        fresh: and it was made.
        cost: seconds of the newest evaluation.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        evaluate: Callable | None,
        due: Callable,
        total_steps: int,
        clock: Stopwatch,
    ):
        super().__init__()
        self.progress = progress
        self.evaluate = evaluate
        self.due = due
        self.total_steps = total_steps
        self.clock = clock
        self.cost = 0.0
        self.due_now = False
        self.fresh = False

    def on_train_begin(self, run_context):
        """Make up for an evaluation that was pending."""
        self.fresh = False
        if self.progress.pending and self.evaluate is not None:
            self._run()

    def on_train_step_end(self, run_context):
        """Evaluate when it is due."""
        step = self.progress.step
        self.fresh = False
        self.due_now = step == self.total_steps or self.due(step)
        if self.due_now and self.evaluate is not None:
            self._run()

    def _run(self) -> None:
        result = None
        if not self.progress.stopping:
            with self.clock.paused():
                start = time.perf_counter()
                result = self.evaluate()
                self.cost = time.perf_counter() - start
        self.progress.pending = result is None
        if result is None:
            self.progress.stopping = True
            return
        self.fresh = True
        self.progress.result = result
        if self.progress.best is None or result["top1"] > self.progress.best["top1"]:
            self.progress.best = {**result, "step": self.progress.step}


class Checkpoints(Callback):
    """Saves the state of the run: the last, and some that are kept; and the weights of the best evaluation.

    `last` is written at each evaluation that is due, at the end and at a stop, and when it is `minutes` old;
    `<network>-<epoch>_<step of the epoch>`, as `ModelCheckpoint` calls them, every so often. A file that
    cannot be written is told, and leaves the others as they are; at the end it is an error.

    Args:
        progress (Progress): where the run stands.
        save (Callable): (path, whole) -> None; the weights alone unless `whole`.
        evaluation (Evaluation): stands before this callback.
        folder (Path): where they go.
        network (str): its name.
        suffix (str): of the format.
        total_steps (int): steps of the run.
        steps_per_epoch (int): steps that an epoch is counted as.
        epochs (int): between two that are kept; None for none.
        steps (int): the same in steps.
        keep_max (int): how many are kept; the oldest goes.
        minutes (float): age of `last`, at most.
        clock (Stopwatch): stands still meanwhile.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        save: Callable[[Path, bool], None],
        evaluation: Evaluation,
        folder: Path,
        network: str,
        suffix: str,
        total_steps: int,
        steps_per_epoch: int,
        epochs: int | None,
        steps: int | None,
        keep_max: int,
        minutes: float,
        clock: Stopwatch,
    ):
        super().__init__()
        self.progress = progress
        self.save = save
        self.evaluation = evaluation
        self.folder = folder
        self.network = network
        self.suffix = suffix
        self.total_steps = total_steps
        self.steps_per_epoch = steps_per_epoch
        self.every = [count for count in (epochs and epochs * steps_per_epoch, steps) if count]
        self.keep_max = keep_max
        self.minutes = minutes
        self.clock = clock
        self.best = progress.best  # of the file
        self.kept = self._found()
        self.saved = time.monotonic()
        self.failure: UserError | None = None

    def save_beginning(self) -> None:
        """Save the state that the run goes on from in a folder that has none."""
        if not (self.folder / f"last{self.suffix}").exists():
            self._save_last()

    def on_train_begin(self, run_context):
        """Save what an evaluation gave that was made up for."""
        if self.evaluation.fresh:
            with self.clock.paused():
                self._save_best()
                self._save_last()

    def on_train_step_end(self, run_context):
        """Save what is due."""
        step = self.progress.step
        keep = any(step % every == 0 for every in self.every)
        ends = step == self.total_steps or self.progress.stopping
        late = time.monotonic() - self.saved > 60 * self.minutes
        if keep or ends or late or self.evaluation.due_now:
            with self.clock.paused():
                self._save_best()
                if keep:
                    self._keep()
                if ends or late or self.evaluation.due_now:
                    self._save_last()
            if self.failure:
                raise self.failure

    def _save_best(self) -> None:
        """The best goes first: it is never worse than `last` says, whenever the run is killed."""
        if self.evaluation.fresh and self.progress.best["step"] == self.progress.step:
            if self._write("best", False):
                self.best = self.progress.best
            else:
                self.progress.best = self.best  # what the file holds; a lower score than this may come next

    def _save_last(self) -> None:
        self._write("last", True)
        self.saved = time.monotonic()

    def _keep(self) -> None:
        epoch, step = divmod(self.progress.step - 1, self.steps_per_epoch)
        name = f"{self.network}-{epoch + 1}_{step + 1}"
        if not self._write(name, True):
            return
        path = self.folder / f"{name}{self.suffix}"
        self.kept = [*(other for other in self.kept if other != path), path]
        while len(self.kept) > self.keep_max:
            self._remove(self.kept.pop(0))

    def _write(self, name: str, whole: bool) -> bool:
        """Write a file; whether it could be."""
        try:
            self.save(self.folder / f"{name}{self.suffix}", whole)
        except UserError as error:
            if self.progress.step == self.total_steps or self.progress.stopping:
                self.failure = error  # the others are tried first
            else:
                log.warning("%s; the run goes on and tries again with the next checkpoint", error)
            return False
        for other in set(SUFFIXES) - {self.suffix}:  # of before the format was changed
            self._remove(self.folder / f"{name}{other}")
        return True

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot remove %s: %s", path, error.strerror)

    def _found(self) -> list[Path]:
        """Those that the run has kept so far, the oldest first."""
        form = re.compile(re.escape(self.network) + r"-(\d+)_(\d+)")
        files = [path for path in self.folder.iterdir() if path.suffix in SUFFIXES]
        found = [(form.fullmatch(path.stem), path) for path in files]
        steps = {p: (int(m[1]) - 1) * self.steps_per_epoch + int(m[2]) for m, p in found if m}
        return sorted((path for path in steps if steps[path] <= self.progress.step), key=steps.get)


class EveryEpochs(Callback):
    """Calls `action` after every `epochs`-th epoch of `steps_per_epoch` steps.

    Args:
        progress (Progress): where the run stands.
        action (Callable): () -> None.
        epochs (int): between two calls.
        steps_per_epoch (int): steps that an epoch is counted as.
        clock (Stopwatch): stands still meanwhile.
    """

    def __init__(
        self,
        progress: Progress,
        action: Callable[[], None],
        *,
        epochs: int,
        steps_per_epoch: int,
        clock: Stopwatch,
    ):
        super().__init__()
        self.progress = progress
        self.action = action
        self.every = epochs * steps_per_epoch
        self.clock = clock

    def on_train_step_end(self, run_context):
        """Call the action when it is due."""
        if self.progress.step % self.every == 0:
            with self.clock.paused():
                self.action()
