"""The callbacks of a run, in their order: each sees what those before it have found out about a step."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from mindspore.train import Callback

from src.atomic import copy_file
from src.callback import LossRecorder, Stopwatch
from src.checkpointing import Checkpoints, Evaluation, EveryEpochs
from src.early_stop import EarlyStop
from src.eval_engine import evaluate
from src.learner import Learner
from src.network import describe
from src.plan import Plan
from src.profiling import Profiling
from src.resume import TRAINING
from src.signals import StopSignals
from src.state_monitor import StateMonitor
from src.watching import Metrics, ProgressBar

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunCallbacks:
    """All of them, and those that are asked afterwards."""

    all: list[Callback]
    losses: LossRecorder
    stop: EarlyStop


@contextlib.contextmanager
def run_callbacks(
    plan: Plan,
    learner: Learner,
    folder: Path,
    *,
    signals: StopSignals,
    upload: Callable[[], None] | None,
    begun: float,
) -> Iterator[RunCallbacks]:
    """Assemble the callbacks of this rank; after the block their files are closed.

    Args:
        plan: the run.
        learner: what is trained.
        folder: of the run.
        signals: that stop it.
        upload: is called after every `upload_epochs` epochs.
        begun: when the program started, of `time.monotonic`.
    """
    cfg, progress, first = plan.cfg, plan.progress, plan.runtime.rank == 0
    clock = Stopwatch()
    of_run = {"clock": clock, "total_steps": len(plan.lr)}
    of_batch = {"batch_size": plan.batch, "steps_per_epoch": plan.steps_per_epoch}
    losses = LossRecorder(progress, plan.lr, scaler=learner.scaler, max_bad=cfg.max_bad_steps)
    stop = EarlyStop(
        progress,
        ask=learner.step.ask_to_stop,
        signals=signals,
        device_num=plan.runtime.device_num,
        max_steps=cfg.max_steps if (cfg.max_steps or 0) < len(plan.lr) else None,  # its end is no stop
        max_minutes=cfg.max_minutes,
        begun=begun,
    )
    evaluation = Evaluation(progress, evaluate=_evaluate(plan, learner, stop), due=plan.due, **of_run)
    watched = {"losses": losses, "evaluation": evaluation}
    with contextlib.ExitStack() as stack:
        callbacks: list[Callback] = [losses]
        if first and cfg.open_profiler and not plan.start:
            profiling = Profiling(folder / "profile", clock=clock)
            stack.callback(profiling.close)
            callbacks.append(profiling)
        callbacks += [stop, evaluation]
        if first:
            title = f"{plan.name}, {folder.name}"
            metrics = Metrics(
                progress,
                folder=folder,
                before=plan.start and plan.start.path.parent,
                title=title,
                tensorboard=cfg.tensorboard,
                log_every=cfg.log_every,
                clock=clock,
                **watched,
                **of_batch,
            )
            stack.callback(metrics.close)
            callbacks.append(metrics)
        if first and cfg.save_checkpoint:
            callbacks.append(_checkpoints(plan, learner, evaluation, folder, of_run))
        if upload and cfg.upload_epochs:
            every = {"epochs": cfg.upload_epochs, "steps_per_epoch": plan.steps_per_epoch}
            callbacks.append(EveryEpochs(progress, upload, clock=clock, **every))
        if first and cfg.progress_bar and sys.stderr.isatty():
            bar = ProgressBar(progress, losses=losses, batch_size=plan.batch, **of_run)
            stack.enter_context(bar.shown())
            callbacks.append(bar)
        callbacks.append(StateMonitor(progress, log_every=cfg.log_every, **watched, **of_run, **of_batch))
        yield RunCallbacks(callbacks, losses, stop)


def _evaluate(plan: Plan, learner: Learner, stop: EarlyStop) -> Callable[[], dict | None] | None:
    if plan.eval_batches is None:
        return None
    return lambda: evaluate(
        learner.evaluated,
        plan.eval_batches,
        device_num=plan.runtime.device_num,
        stopped=stop.is_asked,
        progress_bar=plan.cfg.progress_bar and plan.runtime.rank == 0,
    )


def _checkpoints(
    plan: Plan, learner: Learner, evaluation: Evaluation, folder: Path, of_run: dict
) -> Checkpoints:
    cfg, suffix = plan.cfg, f".{plan.cfg.checkpoint_format}"
    base = {**plan.record(), **describe(learner.network)}

    def save(path: Path, whole: bool) -> None:
        result = plan.progress.result if evaluation.fresh else None
        record = {**base, "step": plan.progress.step, "result": result}
        if whole:
            learner.state.save(path, {**record, TRAINING: plan.training()})
        else:
            learner.state.save_weights(path, record)

    if plan.start and plan.start.path.parent.resolve() != folder.resolve() and plan.progress.best:
        _bring_best(plan, folder)
    checkpoints = Checkpoints(
        plan.progress,
        save=save,
        evaluation=evaluation,
        folder=folder,
        network=plan.name,
        suffix=suffix,
        steps_per_epoch=plan.steps_per_epoch,
        epochs=cfg.save_checkpoint_epochs,
        steps=cfg.save_checkpoint_steps,
        keep_max=cfg.keep_checkpoint_max,
        minutes=cfg.save_checkpoint_minutes,
        **of_run,
    )
    if plan.start:
        checkpoints.save_beginning()
    return checkpoints


def _bring_best(plan: Plan, folder: Path) -> None:
    """Copy the best weights so far into the folder in which the run goes on."""
    best = plan.start.path.with_name(f"best{plan.start.path.suffix}")
    try:
        copy_file(best, folder / best.name)
    except OSError as error:
        log.warning("%s was not copied (%s): the best weights are those of now on", best, error.strerror)
        plan.progress.best = None
