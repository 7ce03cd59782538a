"""From the configuration to batches: which images, which transform, which sizes."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from src import bit_hyperrule
from src.cifar import Cifar, detect_format
from src.class_map import check_class_order
from src.errors import UserError
from src.few_shot import select_few_shot
from src.image_folder import ImageFolder, eval_folder, train_folder
from src.loader import EvalBatches, TrainStream
from src.network import GOOGLE_NORMALISATION
from src.transforms import BitEval, BitTrain

log = logging.getLogger(__name__)


INTERPOLATION = "BILINEAR"


@dataclass(frozen=True)
class Recipe:
    """What BiT-HyperRule and the configuration together say. Sizes are (height, width) in pixels."""

    resize: tuple[int, int]
    crop: tuple[int, int]
    eval_crop: tuple[int, int]
    interpolation: str
    mean: tuple[float, ...]  # of the input, 0..255
    std: tuple[float, ...]
    steps: tuple[int, ...]  # warm-up end, decay steps, end
    lr_max: float
    mixup: float

    def as_keys(self) -> dict:
        """The keys of the configuration that give this recipe again, whatever the data."""
        return {
            "train_resize_size": self.resize,
            "train_image_size": self.crop,
            "eval_image_size": self.eval_crop,
            "interpolation": self.interpolation,
            "image_mean": self.mean,
            "image_std": self.std,
            "schedule_steps": list(self.steps),
            "mixup": self.mixup,
        }


def open_train(cfg) -> ImageFolder | Cifar:
    """Open the training images that the configuration names."""
    _check_set(cfg.dataset_path, "dataset_path", "the training images")
    name = _format(cfg, cfg.dataset_path)
    if name == "imagefolder":
        folder = train_folder(cfg.dataset_path)
        samples = ImageFolder(folder)
    else:
        folder = Path(cfg.dataset_path)
        samples = Cifar(folder, name=name, train=True, label=cfg.cifar100_label)
    classes = len(samples.class_names)
    log.info("training: %d images, %d classes, from %s", len(samples), classes, folder.absolute())
    if classes == 1:
        log.warning("one class leaves nothing to learn; is %s the folder of the class folders?", folder)
    return samples


def open_eval(cfg, class_names: Sequence[str] | None) -> ImageFolder | Cifar:
    """Open the evaluation images; labels follow `class_names`, the classes that a network was trained on.

    Raises:
        MissingDataError: `eval_path` is not set, and nothing lies beside the training images.
        UserError: the images cannot be used, or are of other classes.
    """
    root = cfg.eval_path or cfg.dataset_path
    _check_set(root, "eval_path", "the images to evaluate on")
    name = _format(cfg, root)
    if name == "imagefolder":
        folder = eval_folder(cfg.dataset_path or cfg.eval_path, cfg.eval_path)
        samples = ImageFolder(folder, class_names)
    else:
        folder = Path(root)
        samples = Cifar(root, name=name, train=False, label=cfg.cifar100_label)
    if class_names is not None:
        check_class_order(class_names, samples.class_names)
    log.info("evaluation: %d images from %s", len(samples), folder.absolute())
    return samples


def check_class_num(class_num: int | None, samples, *, allow_unused: bool) -> int:
    """Return the class count of the network: `class_num`, or what the data has.

    Raises:
        UserError: the data has more classes, or fewer and that is not allowed.
    """
    found = len(samples.class_names)
    if class_num is None or class_num == found or (class_num > found and allow_unused):
        return class_num or found
    more = ", or set allow_unused_classes to true" if class_num > found else ""
    raise UserError(
        f"the network has {class_num} classes and the data {found}; use a class_num and data that agree{more}"
    )


def few_shot(cfg, samples) -> np.ndarray | None:
    """Indices of the examples that are trained on, None for all."""
    if cfg.examples_per_class is None:
        return None
    return select_few_shot(
        samples.labels, samples.class_names, cfg.examples_per_class, seed=cfg.examples_per_class_seed
    )


def make_recipe(cfg, image_size: tuple[int, int], *, num_images: int, source: dict) -> Recipe:
    """Let BiT-HyperRule and the pretrained weights fill in what the configuration leaves open.

    Args:
        cfg: the configuration.
        image_size: (height, width) of a typical training image.
        num_images: training images over all devices, after the choice of few-shot examples.
        source: the record of the pretrained weights, empty without.
    """
    rule = bit_hyperrule.resolution(*image_size)
    crop, resize = _pair(cfg.train_image_size), _pair(cfg.train_resize_size)
    if crop is None:
        crop = tuple(math.floor(s * rule.crop / rule.resize) for s in resize) if resize else (rule.crop,) * 2
    if resize is None:
        resize = tuple(math.ceil(s * rule.resize / rule.crop) for s in crop)
    mean, std = (_normalisation(key, cfg[key], source.get(key)) for key in ("image_mean", "image_std"))
    return Recipe(
        resize=resize,
        crop=crop,
        eval_crop=_pair(cfg.eval_image_size) or crop,
        interpolation=cfg.interpolation or INTERPOLATION,
        mean=mean,
        std=std,
        steps=tuple(cfg.schedule_steps or bit_hyperrule.schedule_steps(num_images)),
        lr_max=cfg.lr_max,
        mixup=bit_hyperrule.mixup_alpha(num_images) if cfg.mixup is None else cfg.mixup,
    )


def _normalisation(key: str, wanted, known) -> tuple[float, ...]:
    """The configuration's value, else that of the weights, else the family's; a fine-tune may change it."""
    if wanted is not None and known is not None and not np.allclose(wanted, known):
        log.warning("%s is %s, but the weights were trained with %s", key, list(wanted), list(known))
    return tuple(wanted or known or GOOGLE_NORMALISATION[key])


def eval_crop(cfg, trained, image_size: tuple[int, int]) -> tuple[int, int]:
    """(height, width) to evaluate at: the configuration's, else that of the weights, else the rule's."""
    rule = bit_hyperrule.resolution(*image_size).crop
    return _pair(cfg.eval_image_size) or tuple(trained or (rule, rule))


def train_stream(cfg, samples, recipe: Recipe, *, indices, class_num: int, runtime) -> TrainStream:
    """Assemble the endless stream of training batches of this rank."""
    return TrainStream(
        samples,
        BitTrain(resize=recipe.resize, crop=recipe.crop, hflip=cfg.hflip, interpolation=recipe.interpolation),
        batch_size=cfg.batch_size,
        seed=cfg.seed,
        rank=runtime.rank,
        device_num=runtime.device_num,
        indices=indices,
        class_num=class_num,
        mixup=recipe.mixup,
        mean=recipe.mean,
        std=recipe.std,
        num_workers=_workers(cfg.train_num_workers),
        on_bad_image=cfg.on_bad_image,
    )


def eval_batches(
    cfg, samples, *, crop: tuple[int, int], interpolation: str, mean, std, runtime
) -> EvalBatches:
    """Assemble the batches of an exact evaluation on this rank."""
    return EvalBatches(
        samples,
        BitEval(crop=crop, interpolation=interpolation),
        batch_size=min(cfg.eval_batch_size or cfg.batch_size // cfg.batch_split, len(samples)),
        rank=runtime.rank,
        device_num=runtime.device_num,
        mean=mean,
        std=std,
        num_workers=_workers(cfg.eval_num_workers),
        on_bad_image=cfg.on_bad_image,
    )


def _format(cfg, root) -> str:
    return detect_format(root) if cfg.dataset == "auto" else cfg.dataset


def _check_set(path: str, key: str, what: str) -> None:
    if not path:
        raise UserError(f"{key} is not set; give the folder of {what}: --{key} FOLDER")


def _pair(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    return (size, size) if isinstance(size, int) else size


def _workers(number: int | None) -> int:
    return number or os.cpu_count() or 1
