"""Evaluating saved weights on a user's images."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from src import dataset
from src.context import choose_amp_level, init_context, raise_if_out_of_memory
from src.cpu_kernels.install import install_cpu_kernels
from src.cpu_kernels.pixels import get_pixels
from src.errors import UserError
from src.eval_engine import evaluate
from src.network import set_amp_level
from src.trained import open_trained

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
    trained = open_trained(cfg)
    samples = dataset.open_eval(cfg, trained.class_names)
    # With known names a network may have more classes than names; without them labels would only be guessed.
    class_num = dataset.check_class_num(
        trained.class_num(cfg), samples, allow_unused=trained.class_names is not None
    )
    how = trained.preprocessing(cfg, samples.typical_size())
    size = how["eval_image_size"]
    amp_level = choose_amp_level(cfg.amp_level, cfg.amp_dtype, runtime)
    network = set_amp_level(trained.network(class_num=class_num, image_size=size), amp_level, cfg.amp_dtype)
    install_cpu_kernels(
        network,
        wanted=cfg.cpu_kernels,
        device_target=runtime.device_target,
        device_num=runtime.device_num,
        amp_level=amp_level,
    )
    log.info("network: %s, %d classes, from %s", trained.name, class_num, trained.path)
    log.info("images: %d of %d x %d pixels, amp_level %s", len(samples), *size, amp_level)
    place = {"rank": runtime.rank, "device_num": runtime.device_num}
    batches = dataset.eval_batches(cfg, samples, how, pixels=get_pixels(cfg.cpu_kernels), **place)
    try:
        bar = cfg.progress_bar and runtime.rank == 0
        result = evaluate(network, batches, device_num=runtime.device_num, progress_bar=bar)
    except RuntimeError as error:
        raise_if_out_of_memory(error)
        raise
    if not result["samples"]:
        raise UserError(f"none of {len(samples)} images can be read, such as {samples.names[0]}")
    return EvalResult(**result, total=len(samples), class_num=class_num)
