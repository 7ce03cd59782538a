"""The recipe of a run: what the configuration says, and where it is silent, the network's family."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, dataclass
from typing import Callable

import numpy as np

from src import bit_hyperrule, vit_hyperrule
from src.errors import UserError
from src.lr_generator import get_lr
from src.npz_map import GOOGLE_MEAN, GOOGLE_STD
from src.vit_map import patch_size

log = logging.getLogger(__name__)

INTERPOLATION = "BILINEAR"
STEPPED = ("steps", "bit_staircase")  # the modes that decay at given steps


@dataclass(frozen=True)
class Recipe:
    """What is decided for a run; every field is the key of that name. Sizes are (height, width) in pixels."""

    train_resize_size: tuple[int, int] | None  # None with a random resized crop
    train_image_size: tuple[int, int]
    crop_min: float
    eval_image_size: tuple[int, int]
    eval_crop_ratio: float
    interpolation: str
    image_mean: tuple[float, ...]  # 0..255
    image_std: tuple[float, ...]
    mixup: float
    clip_norm: float
    lr_decay_mode: str
    lr_max: float
    schedule_steps: tuple[int, ...] | None  # None with max_epoch

    def as_keys(self) -> dict:
        """The keys of the configuration that give this recipe again, whatever the data."""
        return asdict(self)


def make_recipe(cfg, name: str, image_size: tuple[int, int], *, num_images: int, source: dict) -> Recipe:
    """Fill in what the configuration leaves open.

    Args:
        cfg: the configuration.
        name: the network's name in the zoo.
        image_size: (height, width) of a typical training image.
        num_images: training images over all devices, after the choice of few-shot examples.
        source: the record of the pretrained weights, empty without.

    Raises:
        UserError: keys that deny each other.
    """
    rule = _vit_rule(name, num_images) if patch_size(name) else _bit_rule(image_size, num_images)
    resize, crop, crop_min = _train_sizes(cfg, rule)
    chosen = {key: rule[key] if cfg[key] is None else cfg[key] for key in ("mixup", "lr_max")}
    if cfg.opt != "momentum" and cfg.lr_max is None:
        raise UserError(f"lr_max is not set; the default belongs to SGD with momentum, opt is {cfg.opt}")
    clip_norm = rule["clip_norm"] if cfg.opt == "momentum" else 0.0
    return Recipe(
        train_resize_size=resize,
        train_image_size=crop,
        crop_min=crop_min,
        eval_image_size=_eval_image_size(cfg, name, crop),
        eval_crop_ratio=_of_weights("eval_crop_ratio", cfg, source, 0.0),
        interpolation=_of_weights("interpolation", cfg, source, INTERPOLATION),
        image_mean=tuple(_of_weights("image_mean", cfg, source, GOOGLE_MEAN)),
        image_std=tuple(_of_weights("image_std", cfg, source, GOOGLE_STD)),
        clip_norm=clip_norm if cfg.clip_norm is None else cfg.clip_norm,
        **chosen,
        **_schedule(cfg, rule),
    )


def learning_rates(cfg, recipe: Recipe, steps_per_epoch: int, batch: int) -> np.ndarray:
    """Return the rate of every step, float32; `batch` is that of all devices."""
    scale = batch / cfg.scale_lr if cfg.scale_lr else 1.0  # linear scaling, arXiv:1706.02677
    if recipe.schedule_steps is None:
        length = {"max_epoch": cfg.max_epoch, "steps_per_epoch": steps_per_epoch}
        length.update(warmup_epochs=cfg.warmup_epochs or 0.0, decay_epochs=cfg.decay_epochs)
    else:
        first, *decays, end = recipe.schedule_steps
        length = {"max_epoch": end, "steps_per_epoch": 1, "warmup_epochs": first, "decay_epochs": decays}
    return get_lr(
        recipe.lr_decay_mode,
        lr_max=recipe.lr_max * scale,
        lr_init=cfg.lr_init * scale,
        lr_min=cfg.lr_min * scale,
        decay_rate=cfg.decay_rate,
        power=cfg.poly_power,
        **length,
    )


def evaluations_due(cfg, steps_per_epoch: int, total: int) -> Callable[[int], bool]:
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


def eval_size(cfg, record: dict, name: str, image_size: tuple[int, int] | None) -> tuple[int, int]:
    """(height, width) to evaluate at: the configuration's, else that of the weights, else the family's.

    Raises:
        UserError: only the usual size of the images could tell, and there is none.
    """
    trained = record.get("eval_image_size")
    if cfg.eval_image_size or trained:
        return pair(cfg.eval_image_size) or tuple(trained)
    side = patch_size(name)
    if side:
        rows, columns = np.broadcast_to(record.get("grid") or vit_hyperrule.resolution(side) // side, 2)
        return int(rows) * side, int(columns) * side
    if image_size is None:
        raise UserError("the weights do not say at which size they see images; set eval_image_size")
    return (bit_hyperrule.resolution(*image_size).crop,) * 2


def pair(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """(height, width) of a size in the configuration."""
    return (size, size) if isinstance(size, int) else size


def _bit_rule(image_size: tuple[int, int], num_images: int) -> dict:
    resize, crop = bit_hyperrule.resolution(*image_size)
    return {
        "crop": crop,
        "resize": resize,
        "crop_min": 0.0,
        "lr_decay_mode": "bit_staircase",
        "schedule_steps": bit_hyperrule.schedule_steps(num_images),
        "lr_max": bit_hyperrule.LR_MAX,
        "mixup": bit_hyperrule.mixup_alpha(num_images),
        "clip_norm": 0.0,
    }


def _vit_rule(name: str, num_images: int) -> dict:
    crop = vit_hyperrule.resolution(patch_size(name))
    return {
        "crop": crop,
        "resize": crop,
        "crop_min": vit_hyperrule.CROP_MIN,
        "lr_decay_mode": "cosine",
        "schedule_steps": vit_hyperrule.schedule_steps(num_images),
        "lr_max": vit_hyperrule.LR_MAX,
        "mixup": 0.0,
        "clip_norm": vit_hyperrule.CLIP_NORM,
    }


def _train_sizes(cfg, rule: dict) -> tuple[tuple[int, int] | None, tuple[int, int], float]:
    """The size before a random crop, the size of the crop, and the least share of a random resized crop."""
    crop, resize = pair(cfg.train_image_size), pair(cfg.train_resize_size)
    if resize and cfg.crop_min:
        raise UserError("crop_min resizes and crops in one; leave out crop_min or train_resize_size")
    if crop is None:
        crop = tuple(math.floor(s * rule["crop"] / rule["resize"]) for s in resize or (rule["resize"],) * 2)
    crop_min = cfg.crop_min
    if crop_min is None:
        crop_min = 0.0 if resize else rule["crop_min"]
    if crop_min:
        return None, crop, crop_min
    return resize or tuple(math.ceil(s * rule["resize"] / rule["crop"]) for s in crop), crop, 0.0


def _schedule(cfg, rule: dict) -> dict:
    """Mode and steps; the steps are None when the run is told in epochs."""
    in_epochs = [key for key in ("warmup_epochs", "decay_epochs") if cfg[key]]
    if cfg.max_epoch and cfg.schedule_steps:
        raise UserError("max_epoch and schedule_steps both say how long the run is; leave one out")
    if in_epochs and not cfg.max_epoch:
        raise UserError(f"{in_epochs[0]} needs max_epoch; set it, or give schedule_steps instead")
    mode = cfg.lr_decay_mode or ("cosine" if cfg.max_epoch else rule["lr_decay_mode"])
    steps = cfg.schedule_steps
    if not steps and not cfg.max_epoch:
        steps = rule["schedule_steps"]
        if mode not in STEPPED:
            steps = (steps[0], steps[-1])
    decays = cfg.decay_epochs if cfg.max_epoch else steps[1:-1]
    if decays and mode not in STEPPED:
        raise UserError(
            f"lr_decay_mode {mode} has no decay steps, and {list(decays)} are given; "
            f"leave them out or use {' or '.join(STEPPED)}"
        )
    return {"lr_decay_mode": mode, "schedule_steps": tuple(steps) if steps else None}


def _eval_image_size(cfg, name: str, crop: tuple[int, int]) -> tuple[int, int]:
    """The size of evaluations while training: a ViT has position embeddings for the size it trains at."""
    size = pair(cfg.eval_image_size) or crop
    if patch_size(name) and size != crop:
        raise UserError(
            f"a ViT is evaluated at its train_image_size {crop} while it trains, not at {size}; leave out "
            "eval_image_size, and let eval.py evaluate at other sizes"
        )
    return size


def _of_weights(key: str, cfg, source: dict, family):
    """The configuration's value, else that of the weights, else the family's; a fine-tune may change it."""
    wanted, known = cfg[key], source.get(key)
    if wanted is not None and known is not None:
        same = wanted == known if isinstance(known, str) else np.allclose(wanted, known)
        if not same:
            log.warning("%s is %s, but the weights were trained with %s", key, wanted, known)
    return next(value for value in (wanted, known, family) if value is not None)
