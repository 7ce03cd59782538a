"""Callbacks of `Model.train` that do something now and then: evaluations, checkpoints, uploads."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mindspore.train import Callback

from src.callback import Stopwatch


class Evaluation(Callback):
    """Evaluates when it is due and after the last step, and keeps the best score and its checkpoint.

    Args:
        evaluate (Callable): () -> {"top1", "top5", "samples"}; None when there is nothing to evaluate on.
        save (Callable): (path, step, result) -> None, writes a checkpoint; None when none is wanted.
        folder (Path): gets `last.ckpt` at every evaluation and at the end, and `best.ckpt` at the best top-1.
        due (Callable): step, from 1 -> whether to evaluate and save after it; the last step always is.
        total_steps (int): steps of the whole run.
        clock (Stopwatch): stands still meanwhile.
    """

    def __init__(
        self,
        *,
        evaluate: Callable | None,
        save: Callable | None,
        folder: Path,
        due: Callable,
        total_steps: int,
        clock: Stopwatch,
    ):
        super().__init__()
        self.evaluate = evaluate
        self.save = save
        self.folder = folder
        self.due = due
        self.total_steps = total_steps
        self.clock = clock
        self.step = 0
        self.result: dict | None = None  # of the newest evaluation
        self.best: dict | None = None
        self.cost = 0.0  # seconds of the newest evaluation
        self.fresh = False  # evaluated in this very step

    def on_train_step_end(self, run_context):
        """Evaluate and save when it is due."""
        self.step += 1
        end = self.step == self.total_steps
        self.fresh = False
        if not end and not self.due(self.step):
            return
        with self.clock.paused():
            self._evaluate_and_save()

    def _evaluate_and_save(self) -> None:
        if self.evaluate is not None:
            start = time.perf_counter()
            self.result = self.evaluate()
            self.cost = time.perf_counter() - start
            self.fresh = True
        if self.save is not None:
            self.save(self.folder / "last.ckpt", self.step, self.result)
        if self.fresh and (self.best is None or self.result["top1"] > self.best["top1"]):
            self.best = {**self.result, "step": self.step}
            if self.save is not None:
                self.save(self.folder / "best.ckpt", self.step, self.result)


class EveryEpochs(Callback):
    """Calls `action(epoch)`, from 1, after every `epochs`-th epoch of `steps_per_epoch` steps."""

    def __init__(self, action: Callable[[int], None], *, epochs: int, steps_per_epoch: int, clock: Stopwatch):
        super().__init__()
        self.action = action
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.clock = clock
        self.step = 0

    def on_train_step_end(self, run_context):
        """Call the action when it is due."""
        self.step += 1
        epoch, rest = divmod(self.step, self.steps_per_epoch)
        if not rest and epoch % self.epochs == 0:
            with self.clock.paused():
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
