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
from src.callback import Evaluation, EveryEpochs, KeptCheckpoints, LossRecorder, StateMonitor
from src.checkpoint import load_pretrained, pretrained_file, read_record, save_network
from src.context import choose_amp_level, init_context, raise_if_out_of_memory
from src.convert import RECORD_FORMAT
from src.cross_entropy import get_loss
from src.errors import MissingDataError, UserError
from src.eval_engine import evaluate
from src.logging import get_logger
from src.model_utils.config import config_to_yaml
from src.network import arguments_of, canonical_name, describe, get_network, set_amp_level
from src.optimizer import get_optimizer
from src.param_rules import layer_scales, match_frozen
from src.profiling import Profiling
from src.recipe import Recipe, learning_rates, make_recipe
from src.run_folder import start_run
from src.step_source import StepSource, as_dataset
from src.train_step import TrainStep, get_loss_scaler

log = logging.getLogger(__name__)

NETWORK_KEYS = ("pool", "gelu", "dropout", "attention_dropout", "drop_path")


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

    samples = dataset.open_train(cfg)
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

    network = _network(cfg, name, weights, source, class_num=class_num, image_size=recipe.train_image_size)
    forward = set_amp_level(network, amp_level, cfg.amp_dtype)
    scaler = None if amp_level == "O0" else get_loss_scaler(cfg.loss_scale_mode, cfg.loss_scale)
    step = TrainStep(
        nn.WithLossCell(forward, _loss(cfg)),
        _optimizer(cfg, network, lr),
        batch_split=cfg.batch_split,
        scaler=scaler,
        clip_norm=recipe.clip_norm or None,
        device_num=runtime.device_num,
    )

    resolved = {**cfg, **recipe.as_keys(), "class_num": class_num, "amp_level": amp_level, "run_name": ""}
    folder = Path(cfg.save_checkpoint_path)
    if runtime.rank == 0:
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
    log.info(
        "steps: %d of %d images in %d parts, %d an epoch", len(lr), batch, cfg.batch_split, steps_per_epoch
    )

    record = {
        "format": RECORD_FORMAT,
        "network": name,
        "class_num": class_num,
        "class_names": list(samples.class_names),
        "image_mean": list(recipe.image_mean),
        "image_std": list(recipe.image_std),
        "eval_image_size": list(recipe.eval_image_size),
        "eval_crop_ratio": recipe.eval_crop_ratio,
        "interpolation": recipe.interpolation,
        **describe(network),
        "pretrained": {key: source[key] for key in ("source", "sha256") if key in source},
    }
    save = _saving(network, record) if cfg.save_checkpoint and runtime.rank == 0 else None
    losses = LossRecorder(lr, scaler)
    evaluation = Evaluation(
        evaluate=_evaluation(cfg, forward, eval_samples, recipe, place),
        save=save,
        folder=folder,
        due=_due(cfg, steps_per_epoch, len(lr)),
        total_steps=len(lr),
    )
    counts = {"batch_size": batch, "steps_per_epoch": steps_per_epoch, "log_every": cfg.log_every}
    callbacks = [losses, evaluation, StateMonitor(losses=losses, evaluation=evaluation, lr=lr, **counts)]
    if save and cfg.save_checkpoint_epochs:
        keep = KeptCheckpoints(
            save=save,
            folder=folder,
            prefix=name,
            steps_per_epoch=steps_per_epoch,
            keep_max=cfg.keep_checkpoint_max,
        )
        callbacks.append(
            EveryEpochs(keep, epochs=cfg.save_checkpoint_epochs, steps_per_epoch=steps_per_epoch)
        )
    if upload and cfg.upload_epochs:
        callbacks.append(
            EveryEpochs(lambda _: upload(), epochs=cfg.upload_epochs, steps_per_epoch=steps_per_epoch)
        )
    if cfg.open_profiler and runtime.rank == 0:
        callbacks.append(Profiling(folder / "profile"))
    epochs = -(-len(lr) // steps_per_epoch)
    steps = StepSource(stream, steps_per_epoch=steps_per_epoch, epochs=epochs)
    _run(step, steps, epochs=epochs, callbacks=callbacks)
    if stream.bad_images:
        log.warning("left out %d broken images of %d", len(stream.bad_images), num_images)
    log.info("saved in %s", folder)
    return TrainResult(folder=folder, losses=losses.values, last=evaluation.result, best=evaluation.best)


def _network(cfg, name: str, weights: Path | None, source: dict, *, class_num: int, image_size) -> nn.Cell:
    """The network as the weights and the configuration say, filled, and frozen where it is to be."""
    arguments = arguments_of(source)
    if cfg.replace_head:
        arguments.pop("pre_logits", None)  # a fine-tune drops the layer together with the head
    arguments.update({key: cfg[key] for key in NETWORK_KEYS if cfg[key] is not None})
    network = get_network(name, num_classes=class_num, image_size=image_size, **arguments)
    if weights:
        load_pretrained(network, weights, replace_head=cfg.replace_head)
    frozen = match_frozen([p.name for p in network.get_parameters()], cfg.freeze)
    for param in network.get_parameters():
        param.requires_grad = param.name not in frozen
    if frozen:
        log.info("frozen: %d of %d parameters", len(frozen), len(list(network.get_parameters())))
    return network


def _optimizer(cfg, network: nn.Cell, lr) -> nn.Optimizer:
    scales = None
    if cfg.layer_decay < 1:
        scales = layer_scales([p.name for p in network.get_parameters()], cfg.layer_decay)
    return get_optimizer(
        cfg.opt,
        network.trainable_params(),
        lr,
        momentum=cfg.momentum,
        beta1=cfg.beta1,
        beta2=cfg.beta2,
        epsilon=cfg.epsilon,
        weight_decay=cfg.weight_decay,
        no_weight_decay=cfg.no_weight_decay_filter,
        gradient_centralization=cfg.gc_flag,
        lr_scales=scales,
    )


def _loss(cfg) -> nn.Cell:
    name = cfg.loss_name or ("ce_smooth_mixup" if cfg.use_label_smooth else "ce")
    return get_loss(name, smooth_factor=cfg.label_smooth_factor if cfg.use_label_smooth else 0.0)


def _due(cfg, steps_per_epoch: int, total: int) -> Callable[[int], bool]:
    """When to evaluate, for a step from 1: by epochs, by steps, or ten times a run."""
    if cfg.eval_interval:
        if cfg.eval_every is not None:
            raise UserError("eval_every counts steps and eval_interval epochs; leave one out")

        def due(step: int) -> bool:
            epoch, rest = divmod(step, steps_per_epoch)
            return not rest and (epoch - 1 - cfg.eval_offset) % cfg.eval_interval == 0

        return due
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
