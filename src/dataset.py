"""From the configuration to batches: which images, transform and sizes; and their MindSpore data set."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import mindspore.dataset as ds
import numpy as np

from src import bit_hyperrule
from src.cifar import Cifar, detect_format
from src.class_map import check_class_order
from src.errors import UserError
from src.few_shot import select_few_shot
from src.image_folder import ImageFolder, eval_folder, train_folder
from src.loader import EvalBatches, TrainStream
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
    steps: tuple[int, ...]  # warm-up end, decay steps, end
    mixup: float


def open_train(cfg) -> ImageFolder | Cifar:
    """Open the training images that the configuration names."""
    _check_set(cfg.dataset_path, "dataset_path", "the training images")
    name = _format(cfg, cfg.dataset_path)
    if name == "imagefolder":
        return ImageFolder(train_folder(cfg.dataset_path))
    return Cifar(cfg.dataset_path, name=name, train=True, label=cfg.cifar100_label)


def open_eval(
    cfg, class_names: Sequence[str] | None, *, optional: bool = False
) -> ImageFolder | Cifar | None:
    """Open the evaluation images.

    Args:
        cfg: the configuration.
        class_names: the classes that a network was trained on; the labels follow them.
        optional: return None, with a warning, when `eval_path` is not set and nothing lies beside the
            training images.
    """
    root = cfg.eval_path or cfg.dataset_path
    _check_set(root, "eval_path", "the images to evaluate on")
    name = _format(cfg, root)
    if name == "imagefolder":
        try:
            folder = eval_folder(cfg.dataset_path or cfg.eval_path, cfg.eval_path)
        except UserError as error:
            if cfg.eval_path or not optional:
                raise
            log.warning("no evaluation while training: %s", error)
            return None
        samples = ImageFolder(folder, class_names)
    else:
        samples = Cifar(root, name=name, train=False, label=cfg.cifar100_label)
    if class_names is not None:
        check_class_order(class_names, samples.class_names)
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


def make_recipe(cfg, *, image_size: tuple[int, int], num_images: int) -> Recipe:
    """Let BiT-HyperRule fill in what the configuration leaves open.

    Args:
        cfg: the configuration.
        image_size: (height, width) of a typical training image.
        num_images: training images over all devices, after the choice of few-shot examples.
    """
    rule = bit_hyperrule.resolution(*image_size)
    crop, resize = _pair(cfg.train_image_size), _pair(cfg.train_resize_size)
    if crop is None:
        crop = tuple(math.floor(s * rule.crop / rule.resize) for s in resize) if resize else (rule.crop,) * 2
    if resize is None:
        resize = tuple(math.ceil(s * rule.resize / rule.crop) for s in crop)
    return Recipe(
        resize=resize,
        crop=crop,
        eval_crop=_pair(cfg.eval_image_size) or crop,
        interpolation=cfg.interpolation or INTERPOLATION,
        steps=tuple(cfg.schedule_steps or bit_hyperrule.schedule_steps(num_images)),
        mixup=bit_hyperrule.mixup_alpha(num_images) if cfg.mixup is None else cfg.mixup,
    )


def eval_crop(cfg, trained, image_size: tuple[int, int]) -> tuple[int, int]:
    """(height, width) to evaluate at: the configuration's, else that of the weights, else the rule's."""
    rule = bit_hyperrule.resolution(*image_size).crop
    return _pair(cfg.eval_image_size or cfg.train_image_size) or tuple(trained or (rule, rule))


def train_stream(cfg, samples, recipe: Recipe, *, indices, class_num: int, mean, std, runtime) -> TrainStream:
    """Assemble the endless stream of training batches of this rank."""
    return TrainStream(
        samples,
        BitTrain(
            resize=recipe.resize, crop=recipe.crop, hflip=cfg.hflip, interpolation=recipe.interpolation
        ),
        batch_size=cfg.batch_size,
        seed=cfg.seed,
        rank=runtime.rank,
        device_num=runtime.device_num,
        indices=indices,
        class_num=class_num,
        mixup=recipe.mixup,
        mean=mean,
        std=std,
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
        batch_size=min(cfg.eval_batch_size or cfg.batch_size, len(samples)),
        rank=runtime.rank,
        device_num=runtime.device_num,
        mean=mean,
        std=std,
        num_workers=_workers(cfg.eval_num_workers),
        on_bad_image=cfg.on_bad_image,
    )


class StepSource:
    """Feeds a `GeneratorDataset` with the steps of `epochs` epochs, an epoch an iteration.

    MindSpore reports an exception of a generator as pages of its own text. This one ends the epoch instead
    and keeps the exception in `error`, for `raise_error` to raise where the user sees it whole.
    """

    def __init__(self, stream: TrainStream, *, steps_per_epoch: int, epochs: int):
        self._batches = stream.iterate(0, steps_per_epoch * epochs)
        self._steps_per_epoch = steps_per_epoch
        self.error: Exception | None = None

    def __len__(self) -> int:
        return self._steps_per_epoch

    def __iter__(self):
        for _ in range(self._steps_per_epoch):
            try:
                batch = next(self._batches)
            except Exception as error:
                self.error = error
                return
            yield batch

    def raise_error(self) -> None:
        """Raise what ended the stream, if anything did."""
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Stop the decoding threads."""
        self._batches.close()


def as_dataset(source: StepSource) -> ds.GeneratorDataset:
    """Wrap whole batches for `Model.train`: columns image (N, 3, H, W) float32 and label."""
    ds.config.set_prefetch_size(1)  # the stream decodes ahead itself; 16 more batches would fill the memory
    return ds.GeneratorDataset(
        source, ["image", "label"], shuffle=False, num_parallel_workers=1, python_multiprocessing=False
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
