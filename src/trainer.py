"""Fine-tuning or training from scratch, as the configuration says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mindspore import nn
from mindspore.train import Callback, Model

from src import dataset
from src.callback import Evaluation, LossRecorder, StateMonitor
from src.checkpoint import load_pretrained, read_record, save_network
from src.context import init_context, raise_if_out_of_memory
from src.convert import RECORD_FORMAT
from src.cross_entropy import CrossEntropy
from src.errors import MissingDataError, UserError
from src.eval_engine import evaluate
from src.logging import get_logger
from src.lr_generator import bit_staircase
from src.model_utils.config import config_to_yaml
from src.network import arguments_of, canonical_name, describe, get_network, set_amp_level
from src.optimizer import get_optimizer
from src.run_folder import start_run
from src.step_source import StepSource, as_dataset
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
    weights = pretrained_file(cfg.pretrained, cfg.backbone)
    source = read_record(weights) if weights else {}
    if source.get("network", name) != name:
        raise UserError(f"{weights} holds a {source['network']}, but backbone is {name}; let them agree")

    samples = dataset.open_train(cfg)
    eval_samples = _open_eval(cfg, samples.class_names)
    indices = dataset.few_shot(cfg, samples)
    num_images = len(samples) if indices is None else len(indices)
    class_num = dataset.check_class_num(cfg.class_num, samples, allow_unused=cfg.allow_unused_classes)
    recipe = dataset.make_recipe(cfg, samples.typical_size(), num_images=num_images, source=source)
    stream = dataset.train_stream(cfg, samples, recipe, indices=indices, class_num=class_num, runtime=runtime)

    arguments = arguments_of(source)
    if cfg.replace_head:
        arguments.pop("pre_logits", None)  # a fine-tune drops the layer together with the head
    network = get_network(name, num_classes=class_num, image_size=recipe.crop, **arguments)
    if weights:
        load_pretrained(network, weights, replace_head=cfg.replace_head)
    forward = set_amp_level(network, cfg.amp_level)
    lr = bit_staircase(cfg.lr_max, recipe.steps)
    scale = 1.0 if cfg.amp_level == "O0" else cfg.loss_scale
    optimizer = get_optimizer(
        cfg.opt,
        network.trainable_params(),
        lr,
        momentum=cfg.momentum,
        weight_decay=cfg.weight_decay,
        loss_scale=scale,
    )
    loss = nn.WithLossCell(forward, CrossEntropy())
    step = TrainStep(loss, optimizer, batch_split=cfg.batch_split, loss_scale=scale)

    resolved = {**cfg, **recipe.as_keys(), "class_num": class_num, "run_name": ""}
    folder = start_run(
        cfg.save_checkpoint_path,
        cfg.run_name,
        config=config_to_yaml(resolved),
        class_names=samples.class_names,
    )
    get_logger(folder, runtime.rank)
    batch = cfg.batch_size * runtime.device_num
    steps_per_epoch = max(1, num_images // batch)
    epochs = -(-len(lr) // steps_per_epoch)
    count = sum(p.size for p in network.get_parameters())
    log.info("configuration: %s", cfg.config_path or "defaults and command line")
    log.info("run folder: %s", folder)
    log.info("device: %s, amp_level %s, seed %d", runtime, cfg.amp_level, cfg.seed)
    log.info("network: %s, %s parameters, weights: %s", name, f"{count:,}", weights or "from scratch")
    log.info("recipe: %s", recipe)
    log.info(
        "steps: %d of %d images in %d parts, %d an epoch", len(lr), batch, cfg.batch_split, steps_per_epoch
    )

    record = {
        "format": RECORD_FORMAT,
        "network": name,
        "class_num": class_num,
        "class_names": list(samples.class_names),
        "image_mean": list(recipe.mean),
        "image_std": list(recipe.std),
        "eval_image_size": list(recipe.eval_crop),
        "interpolation": recipe.interpolation,
        **describe(network),
        "pretrained": {key: source[key] for key in ("source", "sha256") if key in source},
    }
    losses = LossRecorder(lr)
    evaluation = Evaluation(
        evaluate=_evaluation(cfg, forward, eval_samples, recipe, runtime),
        save=_saving(network, record) if cfg.save_checkpoint and runtime.rank == 0 else None,
        folder=folder,
        every=max(1, len(lr) // 10) if cfg.eval_every is None else cfg.eval_every,
        total_steps=len(lr),
    )
    monitor = StateMonitor(
        losses=losses,
        evaluation=evaluation,
        lr=lr,
        batch_size=batch,
        steps_per_epoch=steps_per_epoch,
        log_every=cfg.log_every,
    )
    steps = StepSource(stream, steps_per_epoch=steps_per_epoch, epochs=epochs)
    _run(step, steps, epochs=epochs, callbacks=[losses, evaluation, monitor])
    if stream.bad_images:
        log.warning("left out %d broken images of %d", len(stream.bad_images), num_images)
    log.info("saved in %s", folder)
    return TrainResult(folder=folder, losses=losses.values, last=evaluation.result, best=evaluation.best)


def pretrained_file(pretrained: str, backbone: str) -> Path | None:
    """The file of weights: `pretrained`, or `<backbone>.npz` in it when it is a folder; None for none."""
    if not pretrained:
        return None
    path = Path(pretrained)
    if not path.is_dir():
        return path
    file = path / f"{backbone}.npz"
    if not file.is_file():
        found = ", ".join(sorted(other.name for other in path.glob("*.npz"))) or "no .npz file"
        raise UserError(f"pretrained is a folder without {file.name}; it holds {found}")
    return file


def _open_eval(cfg, class_names: Sequence[str]):
    """The evaluation images, or None with a warning when there are none and none were asked for."""
    try:
        return dataset.open_eval(cfg, class_names)
    except MissingDataError as error:
        if cfg.eval_path:
            raise
        log.warning("no evaluation while training: %s", error)
        return None


def _evaluation(cfg, forward: nn.Cell, samples, recipe: dataset.Recipe, runtime):
    if samples is None:
        return None
    batches = dataset.eval_batches(
        cfg,
        samples,
        crop=recipe.eval_crop,
        interpolation=recipe.interpolation,
        mean=recipe.mean,
        std=recipe.std,
        runtime=runtime,
    )
    return lambda: evaluate(forward, batches)


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
