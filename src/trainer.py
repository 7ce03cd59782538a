"""Fine-tuning or training from scratch, as the configuration says."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mindspore import nn
from mindspore.train import Model

from src import dataset
from src.callback import Evaluation, StateMonitor
from src.checkpoint import load_pretrained, save_network
from src.class_map import CLASS_MAP, write_class_map
from src.context import init_context
from src.cross_entropy import CrossEntropy
from src.errors import UserError
from src.eval_engine import evaluate
from src.logging import get_logger
from src.lr_generator import bit_staircase
from src.model_utils.config import config_to_yaml
from src.network import GOOGLE_NORMALISATION, canonical_name, get_network, set_amp_level
from src.optimizer import get_optimizer
from src.train_step import TrainStep

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """What a run leaves: its folder, every step's loss, and the newest and the best evaluation."""

    folder: Path
    losses: list[float]
    last: dict | None
    best: dict | None


def train(cfg) -> TrainResult:
    """Train the network that the configuration describes, and save its last and its best checkpoint."""
    runtime = init_context(device_target=cfg.device_target, device_id=cfg.device_id, seed=cfg.seed)
    network_name = canonical_name(cfg.backbone)

    samples = dataset.open_train(cfg)
    indices = dataset.few_shot(cfg, samples)
    num_images = len(samples) if indices is None else len(indices)
    class_num = check_class_num(cfg, samples)
    recipe = dataset.make_recipe(cfg, image_size=samples.typical_size(), num_images=num_images)

    network = get_network(network_name, num_classes=class_num, image_size=recipe.crop)
    source = {}
    if cfg.pretrained:
        source = load_pretrained(network, pretrained_file(cfg), replace_head=cfg.replace_head)
    mean, std = normalisation(cfg, source)

    folder = make_run_folder(cfg)
    get_logger(folder, runtime.rank)
    lr = bit_staircase(cfg.lr_max, recipe.steps)
    batch = cfg.batch_size * runtime.device_num
    steps_per_epoch = max(1, num_images // batch)
    _log_summary(cfg, runtime, network_name, network, samples, num_images, recipe, lr, folder)
    (folder / "config.yml").write_text(config_to_yaml(cfg), encoding="utf-8")
    write_class_map(folder / CLASS_MAP, samples.class_names)

    parts = {"mean": mean, "std": std, "runtime": runtime}
    stream = dataset.train_stream(cfg, samples, recipe, indices=indices, class_num=class_num, **parts)
    epochs = -(-len(lr) // steps_per_epoch)
    steps = dataset.StepSource(stream, steps_per_epoch=steps_per_epoch, epochs=epochs)

    forward = set_amp_level(network, cfg.amp_level)
    optimizer = get_optimizer(
        cfg.opt, network.trainable_params(), lr, momentum=cfg.momentum, weight_decay=cfg.weight_decay
    )
    step = TrainStep(nn.WithLossCell(forward, CrossEntropy()), optimizer, batch_split=cfg.batch_split)

    test = None
    if dataset.has_eval(cfg):
        eval_samples = dataset.open_eval(cfg, samples.class_names)
        batches = dataset.eval_batches(
            cfg, eval_samples, crop=recipe.eval_crop, interpolation=cfg.interpolation, **parts
        )
        log.info("evaluation: %d images", len(eval_samples))

        def test():
            return evaluate(forward, batches)

    record = {
        "format": 1,
        "network": network_name,
        "class_num": class_num,
        "class_names": list(samples.class_names),
        "image_mean": list(mean),
        "image_std": list(std),
        "eval_image_size": list(recipe.eval_crop),
        "interpolation": cfg.interpolation,
        "pretrained": {key: source[key] for key in ("source", "sha256") if key in source},
    }

    def save(path, at_step, result):
        save_network(network, path, {**record, "step": at_step, "result": result})

    every = max(1, len(lr) // 10) if cfg.eval_every is None else cfg.eval_every
    evaluation = Evaluation(
        evaluate=test,
        save=save if cfg.save_checkpoint and runtime.rank == 0 else None,
        folder=folder,
        every=every,
        total_steps=len(lr),
    )
    monitor = StateMonitor(
        evaluation=evaluation,
        lr=lr,
        batch_size=batch,
        steps_per_epoch=steps_per_epoch,
        log_every=cfg.log_every,
    )
    _run(step, steps, epochs=epochs, callbacks=[evaluation, monitor])
    if stream.bad_images:
        log.warning("left out %d broken images of %d", len(stream.bad_images), num_images)
    log.info("saved in %s", folder)
    return TrainResult(folder=folder, losses=monitor.losses, last=evaluation.result, best=evaluation.best)


def _run(step: TrainStep, steps: dataset.StepSource, *, epochs: int, callbacks: list) -> None:
    try:
        Model(step).train(epochs, dataset.as_dataset(steps), callbacks=callbacks, dataset_sink_mode=False)
    except RuntimeError:
        steps.raise_error()
        raise
    finally:
        steps.close()
    steps.raise_error()


def check_class_num(cfg, samples) -> int:
    """Class count of the network: `class_num`, or what the data has; the two must agree unless allowed."""
    found = len(samples.class_names)
    if cfg.class_num is None or cfg.class_num == found:
        return found
    if cfg.class_num > found and cfg.allow_unused_classes:
        return cfg.class_num
    raise UserError(
        f"class_num is {cfg.class_num} and the data has {found} classes; leave class_num out"
        + (", or set allow_unused_classes to true" if cfg.class_num > found else "")
    )


def pretrained_file(cfg) -> Path:
    """The file of weights: `pretrained`, or `<backbone>.npz` in it when it is a folder."""
    path = Path(cfg.pretrained)
    return path / f"{cfg.backbone}.npz" if path.is_dir() else path


def normalisation(cfg, record: dict) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of the input, 0..255: by the configuration, else the weights, else the family."""
    chosen = []
    for key in ("image_mean", "image_std"):
        known = record.get(key)
        if cfg[key] is not None and known is not None and not np.allclose(cfg[key], known):
            log.warning("%s is %s, but the weights were trained with %s", key, list(cfg[key]), list(known))
        chosen.append(tuple(cfg[key] or known or GOOGLE_NORMALISATION[key]))
    return chosen[0], chosen[1]


def make_run_folder(cfg) -> Path:
    """Create the run's folder: `run_name` in `save_checkpoint_path`, or a dated one; never a used one."""
    folder = Path(cfg.save_checkpoint_path) / (cfg.run_name or time.strftime("%Y%m%d-%H%M%S"))
    if (folder / "last.ckpt").exists():
        raise UserError(
            f"{folder} holds a trained network already; choose another run_name, or remove the folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create the folder {folder} of the run: {error.strerror}") from error
    return folder


def _log_summary(cfg, runtime, network_name, network, samples, num_images, recipe, lr, folder) -> None:
    log.info("configuration: %s", cfg.config_path or "defaults")
    log.info("run folder: %s", folder)
    log.info(
        "device: %s %d, amp_level %s, seed %d",
        runtime.device_target,
        runtime.device_id,
        cfg.amp_level,
        cfg.seed,
    )
    count = sum(p.size for p in network.get_parameters())
    log.info(
        "network: %s, %s parameters, weights from %s", network_name, f"{count:,}", cfg.pretrained or "scratch"
    )
    log.info(
        "training: %d images, %d classes, from %s", num_images, len(samples.class_names), cfg.dataset_path
    )
    log.info(
        "recipe: resize %s, crop %s, batch %d in %d parts, %d steps %s, lr_max %g, mixup %g",
        recipe.resize,
        recipe.crop,
        cfg.batch_size,
        cfg.batch_split,
        len(lr),
        recipe.steps,
        cfg.lr_max,
        recipe.mixup,
    )
