"""What a training run will do, worked out and checked before its first step: images, recipe, rates, start."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np
from easydict import EasyDict

from src import dataset
from src.beginning import changed_keys
from src.checkpoint import pretrained_file, read_record
from src.class_map import check_class_order
from src.context import Runtime, choose_amp_level
from src.convert import RECORD_FORMAT
from src.cpu_kernels.pixels import get_pixels
from src.errors import MissingDataError, UserError
from src.loader import EvalBatches, TrainStream
from src.model_utils.config import config_from_yaml, config_to_yaml
from src.model_utils.schema import LOCAL_KEYS, SCHEMA, START_KEYS
from src.network import canonical_name
from src.profiling import check_steps
from src.progress import Progress
from src.recipe import Recipe, evaluations_due, learning_rates, make_recipe
from src.resume import Start, training_record

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """A run, ready to begin or to go on.

    Attributes:
        cfg: the configuration; of a resumed run with what its beginning had and nobody has set since.
        name: the network's name in the zoo.
        weights: the file that the network starts from; None for none.
        source: the record of the weights, or of the checkpoint that the run goes on from.
        start: that checkpoint; None for a new run.
        progress: how far the run has come.
        class_names: in the order of their numbers.
        class_num: width of the head.
        num_images: that are trained on.
        stream: the training batches of this rank.
        eval_batches: those of an evaluation; None without.
        amp_level: of mixed precision.
        lr: the rate of every step.
        changed: keys that a resumed run had other values of.
        due: a step, from 1 -> whether it is evaluated after it.
        batch: images a step over all devices.
        steps_per_epoch: steps that an epoch is counted as.
        config: text of the configuration with all that was decided.
        data: a digest of the training images' names and labels.
    """

    cfg: EasyDict
    name: str
    weights: Path | None
    source: dict
    start: Start | None
    progress: Progress
    class_names: Sequence[str]
    class_num: int
    num_images: int
    recipe: Recipe
    stream: TrainStream
    eval_batches: EvalBatches | None
    amp_level: str
    lr: np.ndarray
    due: Callable[[int], bool]
    batch: int
    steps_per_epoch: int
    config: str
    data: str
    runtime: Runtime
    changed: frozenset[str]

    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        pending = self.progress.pending and self.eval_batches is not None
        return self.progress.step >= len(self.lr) and not pending

    def facts(self) -> dict[str, object]:
        """In what all ranks must agree."""
        config = config_from_yaml(self.config, "configuration")
        return {
            "the training images": self.data,
            "the evaluation images": self.eval_batches and len(self.eval_batches),
            "the steps": (self.progress.step, self.cfg.max_steps, self.lr.tobytes()),
            "the configuration": [(key, config[key]) for key in config if key not in LOCAL_KEYS],
        }

    def record(self) -> dict:
        """What a checkpoint says of the network, besides its architecture."""
        pretrained = {key: self.source[key] for key in ("source", "sha256") if key in self.source}
        return {
            "format": RECORD_FORMAT,
            "network": self.name,
            "class_num": self.class_num,
            "class_names": list(self.class_names),
            "image_mean": list(self.recipe.image_mean),
            "image_std": list(self.recipe.image_std),
            "eval_image_size": list(self.recipe.eval_image_size),
            "eval_crop_ratio": self.recipe.eval_crop_ratio,
            "interpolation": self.recipe.interpolation,
            "pretrained": self.source.get("pretrained", {}) if self.start else pretrained,
        }

    def training(self) -> dict:
        """What a checkpoint says of the run."""
        return training_record(
            self.progress, config=self.config, data=self.data, device_num=self.runtime.device_num
        )


def make_plan(cfg, start: Start | None, runtime: Runtime) -> Plan:
    """Work out what a run does from what `find_beginning` gave. Raises `UserError` for what cannot be."""
    amp_level = choose_amp_level(cfg.amp_level, cfg.amp_dtype, runtime)
    name = canonical_name(cfg.backbone)
    weights, source = _weights(cfg, name, start)
    samples = dataset.open_train(cfg)
    if not start and not cfg.replace_head and source.get("class_names"):
        check_class_order(source["class_names"], samples.class_names)
    eval_samples = _open_eval(cfg, samples.class_names)
    indices = dataset.few_shot(cfg, samples)
    num_images = len(samples) if indices is None else len(indices)
    class_num = dataset.check_class_num(cfg.class_num, samples, allow_unused=cfg.allow_unused_classes)
    place = {"rank": runtime.rank, "device_num": runtime.device_num, "pixels": get_pixels(cfg.cpu_kernels)}
    recipe = make_recipe(cfg, name, samples.typical_size(), num_images=num_images, source=source)
    stream = dataset.train_stream(cfg, samples, recipe, indices=indices, class_num=class_num, **place)
    batches = None
    if eval_samples is not None:
        batches = dataset.eval_batches(cfg, eval_samples, recipe.as_keys(), **place)
    batch = cfg.batch_size * runtime.device_num
    steps_per_epoch = max(1, num_images // batch)
    lr = learning_rates(cfg, recipe, steps_per_epoch, batch)
    resolved = {**cfg, **recipe.as_keys(), "class_num": class_num, "amp_level": amp_level}
    resolved.update({key: SCHEMA[key].default_value() for key in START_KEYS - {"save_checkpoint_path"}})
    config, data, changed = config_to_yaml(resolved), _digest(samples), frozenset()
    if start:
        changed = changed_keys(start, config, data, runtime.device_num, may_change=cfg.allow_changed_config)
    _check_watching(cfg, start, len(lr))
    return Plan(
        cfg=cfg,
        name=name,
        weights=weights,
        source=source,
        start=start,
        progress=start.progress if start else Progress(),
        class_names=samples.class_names,
        class_num=class_num,
        num_images=num_images,
        recipe=recipe,
        stream=stream,
        eval_batches=batches,
        amp_level=amp_level,
        lr=lr,
        due=evaluations_due(cfg, steps_per_epoch, len(lr)),
        batch=batch,
        steps_per_epoch=steps_per_epoch,
        config=config,
        data=data,
        runtime=runtime,
        changed=changed,
    )


def _check_watching(cfg, start: Start | None, steps: int) -> None:
    """Find out before the run has a folder what would end it there."""
    if cfg.open_profiler and start:
        log.warning("open_profiler is for the beginning of a run, and is left out of one that goes on")
    elif cfg.open_profiler:
        check_steps(steps)
    if cfg.tensorboard and importlib.util.find_spec("tensorboardX") is None:
        raise UserError(
            "tensorboard needs tensorboardX; pip install -r requirements-tensorboard.txt, or leave it out"
        )
    if cfg.upload_epochs and not cfg.enable_modelarts:
        raise UserError("upload_epochs is for enable_modelarts, which is off; leave it out, or turn that on")


def _weights(cfg, name: str, start: Start | None) -> tuple[Path | None, dict]:
    """The file to start from and its record; a resumed run has all in its checkpoint."""
    weights = None if start else pretrained_file(cfg.pretrained, cfg.backbone)
    source = read_record(weights) if weights else start.record if start else {}
    if source.get("network", name) != name:
        raise UserError(
            f"{weights or start.path} holds a {source['network']}, but backbone is {name}; let them agree, "
            "or name another file"
        )
    return weights, source


def _digest(samples) -> str:
    text = json.dumps([list(samples.class_names), list(samples.names)])
    return hashlib.sha256(text.encode() + samples.labels.tobytes()).hexdigest()


def _open_eval(cfg, class_names: Sequence[str]):
    """The evaluation images, or None with a warning when there are none and none were asked for."""
    try:
        return dataset.open_eval(cfg, class_names)
    except MissingDataError as error:
        if cfg.eval_path:
            raise
        log.warning("no evaluation while training: %s", error)
        return None
