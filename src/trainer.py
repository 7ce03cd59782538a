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
from src.convert import RECORD_FORMAT
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
    name = canonical_name(cfg.backbone)

    samples = dataset.open_train(cfg)
    eval_samples = dataset.open_eval(cfg, samples.class_names, optional=True)
    indices = dataset.few_shot(cfg, samples)
    num_images = len(samples) if indices is None else len(indices)
    class_num = dataset.check_class_num(cfg.class_num, samples, allow_unused=cfg.allow_unused_classes)
    recipe = dataset.make_recipe(cfg, image_size=samples.typical_size(), num_images=num_images)
    lr = bit_staircase(cfg.lr_max, recipe.steps)
    batch = cfg.batch_size * runtime.device_num
    steps_per_epoch = max(1, num_images // batch)
    epochs = -(-len(lr) // steps_per_epoch)

    network = get_network(name, num_classes=class_num, image_size=recipe.crop)
    source = {}
    if cfg.pretrained:
        source = load_pretrained(network, pretrained_file(cfg), replace_head=cfg.replace_head)
    mean, std = normalisation(cfg, source)
    stream = dataset.train_stream(
        cfg, samples, recipe, indices=indices, class_num=class_num, mean=mean, std=std, runtime=runtime
    )

    forward = set_amp_level(network, cfg.amp_level)
    optimizer = get_optimizer(
        cfg.opt, network.trainable_params(), lr, momentum=cfg.momentum, weight_decay=cfg.weight_decay
    )
    step = TrainStep(nn.WithLossCell(forward, CrossEntropy()), optimizer, batch_split=cfg.batch_split)

    record = {
        "format": RECORD_FORMAT,
        "network": name,
        "class_num": class_num,
        "class_names": list(samples.class_names),
        "image_mean": list(mean),
        "image_std": list(std),
        "eval_image_size": list(recipe.eval_crop),
        "interpolation": recipe.interpolation,
        "pretrained": {key: source[key] for key in ("source", "sha256") if key in source},
    }
    folder = make_run_folder(cfg)
    get_logger(folder, runtime.rank)
    (folder / "config.yml").write_text(config_to_yaml(cfg), encoding="utf-8")
    write_class_map(folder / CLASS_MAP, samples.class_names)
    count = sum(p.size for p in network.get_parameters())
    for line in (
        f"configuration: {cfg.config_path or 'defaults and command line'}",
        f"run folder: {folder}",
        f"device: {runtime.device_target} {runtime.device_id}, amp_level {cfg.amp_level}, seed {cfg.seed}",
        f"network: {name}, {count:,} parameters, weights from {cfg.pretrained or 'scratch'}",
        f"training: {num_images} images, {len(samples.class_names)} classes, from {cfg.dataset_path}",
        f"evaluation: {len(eval_samples or ())} images",
        f"recipe: {recipe}",
        f"steps: {len(lr)} of {batch} images in {cfg.batch_split} parts, {steps_per_epoch} an epoch, "
        f"lr_max {cfg.lr_max:g}",
    ):
        log.info("%s", line)

    test = save = None
    if eval_samples is not None:
        batches = dataset.eval_batches(
            cfg,
            eval_samples,
            crop=recipe.eval_crop,
            interpolation=recipe.interpolation,
            mean=mean,
            std=std,
            runtime=runtime,
        )

        def test():
            return evaluate(forward, batches)

    if cfg.save_checkpoint and runtime.rank == 0:

        def save(path, at_step, result):
            save_network(network, path, {**record, "step": at_step, "result": result})

    evaluation = Evaluation(
        evaluate=test,
        save=save,
        folder=folder,
        every=max(1, len(lr) // 10) if cfg.eval_every is None else cfg.eval_every,
        total_steps=len(lr),
    )
    monitor = StateMonitor(
        evaluation=evaluation,
        lr=lr,
        batch_size=batch,
        steps_per_epoch=steps_per_epoch,
        log_every=cfg.log_every,
    )
    steps = dataset.StepSource(stream, steps_per_epoch=steps_per_epoch, epochs=epochs)
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
