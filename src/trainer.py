"""Fine-tuning or training from scratch, as the configuration says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from mindspore import nn
from mindspore.train import Callback, Model

from src import dataset
from src.callback import LossRecorder, StateMonitor, Stopwatch
from src.checkpoint import pretrained_file, read_record, save_network
from src.checkpointing import Evaluation, EveryEpochs, KeptCheckpoints
from src.class_map import check_class_order
from src.context import check_agreement, choose_amp_level, init_context, raise_if_out_of_memory
from src.convert import RECORD_FORMAT
from src.dropout import seed_dropout
from src.errors import MissingDataError, UserError
from src.eval_engine import evaluate
from src.from_config import loss_of, network_of, optimizer_of
from src.logging import get_logger
from src.model_utils.config import config_to_yaml
from src.model_utils.schema import LOCAL_KEYS
from src.network import canonical_name, describe, set_amp_level
from src.profiling import Profiling
from src.recipe import Recipe, learning_rates, make_recipe
from src.run_folder import start_run
from src.step_source import StepSource, as_dataset
from src.train_step import TrainStep, get_loss_scaler

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """What a run leaves: its folder, every step's loss, and the newest and the best evaluation."""

    folder: Path  # of rank 0; for other ranks the folder of all runs
    losses: list[float]
    last: dict | None
    best: dict | None


def train(cfg, upload: Callable[[], None] | None = None) -> TrainResult:
    """Train the network that the configuration describes, and save its last and its best checkpoint.

    Args:
        cfg: the configuration.
        upload: is called after every `upload_epochs` epochs.
    """
    runtime = init_context(
        device_target=cfg.device_target,
        device_id=cfg.device_id,
        seed=cfg.seed,
        all_reduce_fusion=cfg.all_reduce_fusion,
    )
    amp_level = choose_amp_level(cfg.amp_level, cfg.amp_dtype, runtime)
    name = canonical_name(cfg.backbone)
    weights = pretrained_file(cfg.pretrained, cfg.backbone)
    source = read_record(weights) if weights else {}
    if source.get("network", name) != name:
        raise UserError(f"{weights} holds a {source['network']}, but backbone is {name}; let them agree")
    if cfg.upload_epochs and not cfg.enable_modelarts:
        raise UserError("upload_epochs is for enable_modelarts, which is off; leave it out, or turn that on")

    samples = dataset.open_train(cfg)
    if not cfg.replace_head and source.get("class_names"):
        check_class_order(source["class_names"], samples.class_names)
    eval_samples = _open_eval(cfg, samples.class_names)
    indices = dataset.few_shot(cfg, samples)
    num_images = len(samples) if indices is None else len(indices)
    class_num = dataset.check_class_num(cfg.class_num, samples, allow_unused=cfg.allow_unused_classes)
    place = {"rank": runtime.rank, "device_num": runtime.device_num}
    recipe = make_recipe(cfg, name, samples.typical_size(), num_images=num_images, source=source)
    stream = dataset.train_stream(cfg, samples, recipe, indices=indices, class_num=class_num, **place)
    batch = cfg.batch_size * runtime.device_num
    steps_per_epoch = max(1, num_images // batch)
    lr = learning_rates(cfg, recipe, steps_per_epoch, batch)

    network = network_of(cfg, name, weights, source, class_num=class_num, image_size=recipe.train_image_size)
    forward = set_amp_level(network, amp_level, cfg.amp_dtype)
    scaler = None if amp_level == "O0" else get_loss_scaler(cfg.loss_scale_mode, cfg.loss_scale)
    step = TrainStep(
        nn.WithLossCell(forward, loss_of(cfg)),
        optimizer_of(cfg, network, lr),
        batch_split=cfg.batch_split,
        scaler=scaler,
        clip_norm=recipe.clip_norm or None,
        dropout_calls=seed_dropout(network, cfg.seed, runtime.rank),
        device_num=runtime.device_num,
    )

    resolved = {**cfg, **recipe.as_keys(), "class_num": class_num, "amp_level": amp_level, "run_name": ""}
    check_agreement(
        {
            "the training images": (samples.class_names, samples.labels.tobytes()),
            "the evaluation images": eval_samples and len(eval_samples),
            "the steps": lr.tobytes(),
            "the configuration": [(key, resolved[key]) for key in resolved if key not in LOCAL_KEYS],
        },
        runtime.device_num,
    )
    due, clock = _due(cfg, steps_per_epoch, len(lr)), Stopwatch()
    folder = Path(cfg.save_checkpoint_path)
    profiling = None
    if runtime.rank == 0:
        if cfg.open_profiler:
            profiling = Profiling(total_steps=len(lr), clock=clock)
        folder = start_run(
            cfg.save_checkpoint_path,
            cfg.run_name,
            config=config_to_yaml(resolved),
            class_names=samples.class_names,
        )
        get_logger(folder)
    count = sum(p.size for p in network.get_parameters())
    log.info("configuration: %s", cfg.config_path or "defaults and command line")
    log.info("run folder: %s", folder)
    log.info("device: %s, amp_level %s, seed %d", runtime, amp_level, cfg.seed)
    log.info("network: %s, %s parameters, weights: %s", name, f"{count:,}", weights or "from scratch")
    log.info("recipe: %s", ", ".join(f"{key} {value}" for key, value in recipe.as_keys().items() if value))
    parts = f" in {cfg.batch_split} parts" if cfg.batch_split > 1 else ""
    log.info("steps: %d of %d images%s, %d an epoch", len(lr), batch, parts, steps_per_epoch)

    save = None
    if cfg.save_checkpoint and runtime.rank == 0:
        save = _saving(network, _record(network, name, class_num, samples.class_names, recipe, source))
    losses = LossRecorder(lr, scaler)
    evaluation = Evaluation(
        evaluate=_evaluation(cfg, forward, eval_samples, recipe, place),
        save=save,
        folder=folder,
        due=due,
        total_steps=len(lr),
        clock=clock,
    )
    monitor = StateMonitor(
        losses=losses,
        evaluation=evaluation,
        clock=clock,
        total_steps=len(lr),
        batch_size=batch,
        steps_per_epoch=steps_per_epoch,
        log_every=cfg.log_every,
    )
    callbacks = [losses, evaluation, monitor]
    if profiling:
        profiling.folder = folder / "profile"
        callbacks.insert(1, profiling)
    now_and_then = []
    if save and cfg.save_checkpoint_epochs:
        keep = KeptCheckpoints(
            save=save,
            folder=folder,
            prefix=name,
            steps_per_epoch=steps_per_epoch,
            keep_max=cfg.keep_checkpoint_max,
        )
        now_and_then.append((keep, cfg.save_checkpoint_epochs))
    if upload and cfg.upload_epochs:
        now_and_then.append((lambda _: upload(), cfg.upload_epochs))
    for action, epochs in now_and_then:
        callbacks.append(EveryEpochs(action, epochs=epochs, steps_per_epoch=steps_per_epoch, clock=clock))
    epochs = -(-len(lr) // steps_per_epoch)
    steps = StepSource(stream, steps_per_epoch=steps_per_epoch, epochs=epochs)
    try:
        _run(step, steps, epochs=epochs, callbacks=callbacks)
    finally:
        if profiling:
            profiling.close()
    if stream.bad_images:
        log.warning("left out %d broken images of %d", len(stream.bad_images), num_images)
    if not losses.applied:
        raise UserError("not one step could be applied: see the warnings; lower loss_scale or lr_max")
    log.info("saved in %s", folder)
    return TrainResult(folder=folder, losses=losses.values, last=evaluation.result, best=evaluation.best)


def _record(network: nn.Cell, name: str, class_num: int, class_names, recipe: Recipe, source: dict) -> dict:
    """What a checkpoint says of itself."""
    return {
        "format": RECORD_FORMAT,
        "network": name,
        "class_num": class_num,
        "class_names": list(class_names),
        "image_mean": list(recipe.image_mean),
        "image_std": list(recipe.image_std),
        "eval_image_size": list(recipe.eval_image_size),
        "eval_crop_ratio": recipe.eval_crop_ratio,
        "interpolation": recipe.interpolation,
        **describe(network),
        "pretrained": {key: source[key] for key in ("source", "sha256") if key in source},
    }


def _due(cfg, steps_per_epoch: int, total: int) -> Callable[[int], bool]:
    """When to evaluate, for a step from 1: by epochs, by steps, or ten times a run."""
    if cfg.eval_interval:
        if cfg.eval_every is not None:
            raise UserError("eval_every counts steps and eval_interval epochs; leave one out")

        def due(step: int) -> bool:
            epoch, rest = divmod(step, steps_per_epoch)
            return not rest and (epoch - 1 - cfg.eval_offset) % cfg.eval_interval == 0

        return due
    if cfg.eval_offset != -1:
        raise UserError(
            "eval_offset belongs to eval_interval, which is not set; set it, or leave out eval_offset"
        )
    every = max(1, total // 10) if cfg.eval_every is None else cfg.eval_every
    return lambda step: every > 0 and step % every == 0


def _open_eval(cfg, class_names: Sequence[str]):
    """The evaluation images, or None with a warning when there are none and none were asked for."""
    try:
        return dataset.open_eval(cfg, class_names)
    except MissingDataError as error:
        if cfg.eval_path:
            raise
        log.warning("no evaluation while training: %s", error)
        return None


def _evaluation(cfg, forward: nn.Cell, samples, recipe: Recipe, place: dict):
    if samples is None:
        return None
    batches = dataset.eval_batches(cfg, samples, recipe.as_keys(), **place)
    return lambda: evaluate(forward, batches, device_num=place["device_num"])


def _saving(network: nn.Cell, record: dict):
    def save(path: Path, step: int, result: dict | None) -> None:
        save_network(network, path, {**record, "step": step, "result": result})

    return save


def _run(step: TrainStep, steps: StepSource, *, epochs: int, callbacks: Sequence[Callback]) -> None:
    try:
        Model(step).train(epochs, as_dataset(steps), callbacks=callbacks, dataset_sink_mode=False)
    except RuntimeError as error:
        steps.raise_error()
        raise_if_out_of_memory(error)
        raise
    finally:
        steps.close()
    steps.raise_error()
