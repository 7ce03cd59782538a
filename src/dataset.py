"""From the configuration to batches: which images, which transform, which sizes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from src.autoaugment import AUGMENTS, get_augment
from src.cifar import Cifar, detect_format
from src.class_map import check_class_order
from src.errors import UserError
from src.few_shot import select_few_shot
from src.image_cache import ImageCache
from src.image_folder import ImageFolder, eval_folder, train_folder
from src.loader import EvalBatches, TrainStream
from src.photo import Photo
from src.pixels import PLAIN, Pixels
from src.recipe import Recipe
from src.transforms import CentreCrop, RandomCrop, RandomErasing, RandomResizedCrop, Resize, TrainTransform

log = logging.getLogger(__name__)


def open_train(cfg) -> ImageFolder | Cifar:
    """Open the training images that the configuration names."""
    _check_set(cfg.dataset_path, "dataset_path", "the training images")
    name = _format(cfg, cfg.dataset_path)
    if name == "imagefolder":
        folder = train_folder(cfg.dataset_path)
        samples = ImageFolder(folder, read=partial(Photo, reduced=cfg.reduced_decoding))
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


def train_stream(
    cfg,
    samples,
    recipe: Recipe,
    *,
    indices,
    class_num: int,
    pixels: Pixels = PLAIN,
    rank: int = 0,
    device_num: int = 1,
) -> TrainStream:
    """Assemble the endless stream of training batches of this rank; `pixels` are the operators."""
    transform = _train_transform(cfg, recipe, pixels)
    return TrainStream(
        _cached(cfg, samples, transform.geometry) if cfg.image_cache else samples,
        transform,
        batch_size=cfg.batch_size,
        seed=cfg.seed,
        rank=rank,
        device_num=device_num,
        indices=indices,
        class_num=class_num,
        mixup=recipe.mixup,
        cutmix=cfg.cutmix,
        mean=recipe.image_mean,
        std=recipe.image_std,
        num_workers=_workers(cfg.train_num_workers),
        on_bad_image=cfg.on_bad_image,
        pixels=pixels,
    )


def eval_batches(
    cfg, samples, how: Mapping, *, pixels: Pixels = PLAIN, rank: int = 0, device_num: int = 1
) -> EvalBatches:
    """Assemble the batches of an exact evaluation on this rank; `how` has the keys of `preprocessing`."""
    return EvalBatches(
        samples,
        eval_transform(how, pixels),
        batch_size=min(cfg.eval_batch_size or cfg.batch_size // cfg.batch_split, len(samples)),
        rank=rank,
        device_num=device_num,
        mean=how["image_mean"],
        std=how["image_std"],
        num_workers=_workers(cfg.eval_num_workers),
        on_bad_image=cfg.on_bad_image,
        pixels=pixels,
    )


def eval_transform(how: Mapping, pixels: Pixels = PLAIN) -> Resize | CentreCrop:
    """The evaluation's transform; `eval_crop_ratio` 0 resizes straight to `eval_image_size`."""
    size, ratio, interpolation = (how[key] for key in ("eval_image_size", "eval_crop_ratio", "interpolation"))
    if ratio:
        return CentreCrop(tuple(size), ratio, interpolation, pixels)
    return Resize(tuple(size), interpolation, pixels)


def _train_transform(cfg, recipe: Recipe, pixels: Pixels) -> TrainTransform:
    crop, interpolation = recipe.train_image_size, recipe.interpolation
    if recipe.crop_min:
        geometry = RandomResizedCrop(crop, recipe.crop_min, interpolation, pixels)
    else:
        geometry = RandomCrop(recipe.train_resize_size, crop, interpolation, pixels)
    erasing = None
    if cfg.random_erasing:
        erasing = RandomErasing(cfg.random_erasing, recipe.image_mean, recipe.image_std)
    return TrainTransform(geometry, hflip=cfg.hflip, augment=_augment(cfg), erasing=erasing)


def _cached(cfg, samples, geometry) -> ImageCache:
    if not isinstance(samples, ImageFolder) or not isinstance(geometry, RandomCrop):
        raise UserError(
            "image_cache keeps the images of a folder that are all resized to one size, train_resize_size, "
            "before a random crop; leave it empty for other data and for random resized crops"
        )
    how = (geometry.interpolation, cfg.reduced_decoding)
    size = geometry.resize
    return ImageCache(samples, Path(cfg.image_cache), size=size, resize=geometry.resized, how=how)


def _augment(cfg):
    chosen = [name for name in AUGMENTS if cfg[name]]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} are set, and an image gets one of them; leave one in")
    if not chosen:
        return None
    return get_augment(chosen[0], cfg.randaugment if chosen[0] == "randaugment" else None)


def _format(cfg, root) -> str:
    return detect_format(root) if cfg.dataset == "auto" else cfg.dataset


def _check_set(path: str, key: str, what: str) -> None:
    if not path:
        raise UserError(f"{key} is not set; give the folder of {what}: --{key} FOLDER")


def _workers(number: int | None) -> int:
    return number or len(os.sched_getaffinity(0))  # a rank may be bound to some cores
