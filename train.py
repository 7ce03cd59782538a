"""Trains a network: `python train.py --config_path config/bit_cifar10.yml --dataset_path FOLDER`."""

from __future__ import annotations

import sys
from functools import partial

from src.errors import run_main
from src.logging import get_logger, hush_mindspore
from src.model_utils.config import check_given, load_config
from src.model_utils.local_adapter import get_place
from src.model_utils.moxing_adapter import moxing_wrapper, uploader
from src.signals import StopSignals


def main(argv=None) -> int:
    """Train as the configuration says; return the exit code."""
    signals = StopSignals()

    def run():
        cfg = load_config(
            argv,
            prog="train.py",
            description="Fine-tune or train a network on a folder of images, or go on with a run.",
        )
        if not cfg.resume:
            check_given(cfg, ["backbone"])
        hush_mindspore()
        with signals.held():
            from src.trainer import train  # after the checks: MindSpore takes seconds to import

        get_logger(rank=get_place().rank)
        upload = uploader(cfg) if cfg.enable_modelarts else None
        moxing_wrapper(partial(train, upload=upload, signals=signals))(cfg)

    with signals.watched():
        return run_main(run)


if __name__ == "__main__":
    sys.exit(main())
