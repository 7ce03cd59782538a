"""Evaluating saved weights on a user's images."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from src import dataset
from src.checkpoint import load_pretrained, read_record
from src.class_map import CLASS_MAP, check_class_order, read_class_map
from src.context import choose_amp_level, init_context, raise_if_out_of_memory
from src.errors import UserError
from src.eval_engine import evaluate
from src.network import GOOGLE_NORMALISATION, arguments_of, canonical_name, get_network, set_amp_level
from src.recipe import INTERPOLATION, eval_size

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvalResult:
    """Fractions of one; `top5` is None with fewer than five classes. `total` counts broken images, too."""

    top1: float
    top5: float | None
    samples: int
    total: int
    class_num: int


def evaluate_checkpoint(cfg) -> EvalResult:
    """Evaluate the weights of `checkpoint_path` as their own record says; the configuration must not deny it.

    Raises:
        UserError: the weights, the images and the configuration do not belong together.
    """
    runtime = init_context(device_target=cfg.device_target, device_id=cfg.device_id, seed=cfg.seed)
    path = Path(cfg.checkpoint_path)
    record = read_record(path)
    name = _agreed(
        "backbone", canonical_name(cfg.backbone) if cfg.backbone else None, record.get("network"), path
    )
    if name is None:
        raise UserError(f"{path} does not say which network it is; set backbone")

    class_names = _class_names(path, record)
    samples = dataset.open_eval(cfg, class_names)
    class_num = _agreed("class_num", cfg.class_num, record.get("class_num"), path)
    # With known names a network may have more classes than names; without them labels would only be guessed.
    class_num = dataset.check_class_num(class_num, samples, allow_unused=class_names is not None)

    crop = eval_size(cfg, record, name, samples.typical_size())
    ratio = record.get("eval_crop_ratio", 0.0) if cfg.eval_crop_ratio is None else cfg.eval_crop_ratio
    interpolation = _agreed("interpolation", cfg.interpolation, record.get("interpolation"), path)
    chosen = {
        key: tuple(_agreed(key, cfg[key], record.get(key), path) or family)
        for key, family in GOOGLE_NORMALISATION.items()
    }
    arguments = arguments_of(record)
    for key in ("pool", "gelu"):
        if cfg[key] is not None:
            arguments[key] = _agreed(key, cfg[key], record.get(key), path)
    network = get_network(name, num_classes=class_num, image_size=crop, **arguments)
    load_pretrained(network, path)
    amp_level = choose_amp_level(cfg.amp_level, cfg.amp_dtype, runtime)
    log.info("network: %s, %d classes, from %s", name, class_num, path)
    log.info("images: %d of %d x %d pixels, amp_level %s", len(samples), *crop, amp_level)
    batches = dataset.eval_batches(
        cfg,
        samples,
        crop=crop,
        crop_ratio=ratio,
        interpolation=interpolation or INTERPOLATION,
        mean=chosen["image_mean"],
        std=chosen["image_std"],
        runtime=runtime,
    )
    try:
        result = evaluate(set_amp_level(network, amp_level, cfg.amp_dtype), batches)
    except RuntimeError as error:
        raise_if_out_of_memory(error)
        raise
    if not result["samples"]:
        raise UserError(f"none of {len(samples)} images can be read, such as {samples.names[0]}")
    return EvalResult(**result, total=len(samples), class_num=class_num)


def _agreed(key: str, wanted, known, path: Path):
    """What the configuration and the weights say of `key`, when one is silent or both say the same."""
    if wanted is None or known is None:
        return known if wanted is None else wanted
    if isinstance(wanted, (str, int)):
        same = wanted == known
    else:
        same = np.shape(wanted) == np.shape(known) and np.allclose(wanted, known)
    if not same:
        raise UserError(f"{key} is {wanted}, but {path} was made with {known}; leave {key} out")
    return wanted


def _class_names(path: Path, record: dict) -> tuple[str, ...] | None:
    """The classes that the weights were trained on: by their record, and by the class map beside them."""
    inside = record.get("class_names")
    beside = path.with_name(CLASS_MAP)
    if not beside.exists():
        return None if inside is None else tuple(inside)
    names = read_class_map(beside)
    if inside is not None:
        check_class_order(inside, names)
    return names
