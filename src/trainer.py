"""Fine-tuning or training from scratch, as the configuration says."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from mindspore.train import Callback, Model

from src.beginning import find_beginning
from src.compile_cache import CompileCache
from src.context import (
    check_agreement,
    init_context,
    peak_memory,
    raise_if_out_of_memory,
    wait_for_all,
)
from src.early_stop import EarlyStop
from src.errors import Stopped, UserError
from src.learner import Learner, make_learner
from src.logging import get_logger
from src.model_utils.config import config_from_yaml
from src.model_utils.schema import LOCAL_KEYS, START_KEYS
from src.network import describe
from src.plan import Plan, make_plan
from src.resume import set_aside_later
from src.run_callbacks import run_callbacks
from src.run_folder import is_run_folder, run_folder
from src.signals import StopSignals
from src.step_source import StepSource, as_dataset

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """What a run leaves: its folder, the losses of this start, and the newest and the best evaluation."""

    folder: Path  # of rank 0; for other ranks the folder of all runs
    losses: list[float]
    last: dict | None
    best: dict | None


def train(cfg, upload: Callable[[], None] | None = None, signals: StopSignals | None = None) -> TrainResult:
    """Train the network that the configuration describes, and save the state of the run and its best weights.

    Args:
        cfg: the configuration.
        upload: is called after every `upload_epochs` epochs.
        signals: that stop the run.

    Raises:
        UserError: something cannot work.
        Stopped: a signal ended the run, after it was saved.
    """
    begun, signals = time.monotonic(), signals or StopSignals()
    cfg, start = find_beginning(cfg)
    runtime = init_context(
        device_target=cfg.device_target,
        device_id=cfg.device_id,
        seed=cfg.seed,
        all_reduce_fusion=cfg.all_reduce_fusion,
    )
    plan = make_plan(cfg, start, runtime)
    learner = make_learner(plan)
    check_agreement(plan.facts(), runtime.device_num)
    with contextlib.ExitStack() as stack:
        folder = _enter_folder(plan, stack)
        _announce(plan, learner, folder)
        callbacks = stack.enter_context(
            run_callbacks(plan, learner, folder, signals=signals, upload=upload, begun=begun)
        )
        with signals.deferred("the run saves and stops after this step; a second signal ends it at once"):
            _run(plan, learner, callbacks.all)
        result = TrainResult(folder, callbacks.losses.values, plan.progress.result, plan.progress.best)
    if plan.progress.stopping:
        wait_for_all(runtime.device_num)  # a launcher ends the others when the first rank has gone
    _conclude(plan, folder, callbacks.stop, bool(result.losses))
    if signals.signum and not plan.is_complete():
        raise Stopped(signals.signum)
    return result


def _enter_folder(plan: Plan, stack: contextlib.ExitStack) -> Path:
    """Have rank 0 take the run's folder, and all know whether it could; return it, or where the runs are."""
    folder, failure = Path(plan.cfg.save_checkpoint_path), None
    if plan.runtime.rank == 0:
        try:
            folder = stack.enter_context(_folder(plan))
            if plan.start and plan.cfg.resume == str(plan.start.path):
                set_aside_later(plan.start)
            get_logger(folder)
        except UserError as error:
            failure = error
    try:
        check_agreement({"the folder of the run": failure is None}, plan.runtime.device_num)
    except UserError as error:
        raise failure or error from None
    if failure:
        raise failure
    return folder


def _folder(plan: Plan) -> contextlib.AbstractContextManager[Path]:
    """The run's folder: a new one, or that of the run unless the user has said where to go on."""
    cfg, start = plan.cfg, plan.start
    root, name, again = cfg.save_checkpoint_path, cfg.run_name, cfg.resume == "auto" and bool(cfg.run_name)
    if start and is_run_folder(start.path.absolute().parent):
        before = start.path.absolute().parent
        name = name or before.name
        again = Path(root, name).absolute() == before
    return run_folder(root, name, config=plan.config, class_names=plan.class_names, again=again)


def _announce(plan: Plan, learner: Learner, folder: Path) -> None:
    """The start-up summary."""
    cfg, runtime, lr = plan.cfg, plan.runtime, plan.lr
    count = sum(p.size for p in learner.network.get_parameters())
    base = "that of the run" if plan.start else "defaults"
    log.info("configuration: %s and command line", cfg.config_path or base)
    log.info("run folder: %s", folder)
    log.info("device: %s, amp_level %s, seed %d", runtime, plan.amp_level, cfg.seed)
    source = plan.weights or (plan.start.path if plan.start else "from scratch")
    log.info("network: %s, %s parameters, weights: %s", plan.name, f"{count:,}", source)
    log.info("images: %d in %d classes", plan.num_images, plan.class_num)
    log.info(
        "recipe: %s", ", ".join(f"{key} {value}" for key, value in plan.recipe.as_keys().items() if value)
    )
    parts = f" in {cfg.batch_split} parts" if cfg.batch_split > 1 else ""
    log.info("steps: %d of %d images%s, %d an epoch", len(lr), plan.batch, parts, plan.steps_per_epoch)
    log.info(
        "rate: %.3g at first, %.3g at most, %.3g at last; optimizer %s", lr[0], lr.max(), lr[-1], cfg.opt
    )
    if plan.start:
        log.info("resumed after step %d of %d, from %s", plan.progress.step, len(lr), plan.start.path)


def _conclude(plan: Plan, folder: Path, stop: EarlyStop, stepped: bool) -> None:
    """The closing lines."""
    progress = plan.progress
    if plan.stream.bad_images:
        log.warning("left out %d broken images of %d", len(plan.stream.bad_images), plan.num_images)
    log.info("peak memory: %.2f GB", peak_memory(plan.runtime) / 1e9)
    if not progress.applied and plan.is_complete():
        raise UserError("not one step could be applied: see the warnings; lower loss_scale or lr_max")
    where = f"saved in {folder}" if plan.cfg.save_checkpoint else "not saved: save_checkpoint is false"
    if plan.is_complete():
        log.info("%s%s", "" if stepped else "the run is complete, nothing was left to do; ", where)
    else:
        counts = (progress.step, len(plan.lr))
        log.info("stopped after step %d of %d: %s; %s; --resume goes on", *counts, stop.reason, where)


def _run(plan: Plan, learner: Learner, callbacks: Sequence[Callback]) -> None:
    first, total = plan.progress.step, len(plan.lr)
    if plan.progress.pending:
        for callback in callbacks[:-1]:  # make up for the evaluation, and save what it gave
            callback.on_train_begin(None)
    if plan.progress.stopping or first >= min(total, plan.cfg.max_steps or total):
        return
    source = StepSource(
        plan.stream, first_step=first, total_steps=total, steps_per_epoch=plan.steps_per_epoch
    )
    callbacks, cache = list(callbacks), None
    if plan.cfg.compile_cache and plan.runtime.device_target == "CPU":
        cache = CompileCache(_graph_facts(plan, learner))
        callbacks.insert(0, cache)
    model = Model(learner.step)
    try:
        model.train(source.epochs, as_dataset(source), callbacks=callbacks, dataset_sink_mode=False)
    except RuntimeError as error:
        source.raise_error()
        raise_if_out_of_memory(error)
        raise
    finally:
        source.close()
        if cache is not None:
            cache.close()
    source.raise_error()


def _graph_facts(plan: Plan, learner: Learner) -> list[object]:
    """All that shapes the graph of a step, besides sources and versions."""
    params = [(p.name, p.shape, str(p.dtype), p.requires_grad) for p in learner.step.get_parameters()]
    schedule = hashlib.sha256(plan.lr.tobytes()).hexdigest()
    config = [(key, value) for key, value in config_from_yaml(plan.config, "configuration").items()
              if key not in LOCAL_KEYS | START_KEYS]  # fmt: skip
    how = (plan.name, plan.class_num, plan.amp_level, describe(learner.network), learner.kernels)
    return [config, schedule, plan.runtime, how, params]
