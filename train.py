"""Trains a network: `python train.py --config_path config/bit_cifar10.yml --dataset_path FOLDER`."""

from __future__ import annotations

import sys
from functools import partial

from src.errors import run_main
from src.logging import get_logger
from src.model_utils.config import load_config
from src.model_utils.local_adapter import get_place
from src.model_utils.moxing_adapter import moxing_wrapper, uploader


def main(argv=None) -> int:
    """Train as the configuration says; return the exit code."""

    def run():
        cfg = load_config(
            argv,
            prog="train.py",
            description="Fine-tune or train a network on a folder of images.",
            required=("backbone",),
        )
        from src.trainer import train  # after the checks: MindSpore takes seconds to import

        get_logger(rank=get_place().rank)
        upload = uploader(cfg) if cfg.enable_modelarts else None
        moxing_wrapper(partial(train, upload=upload))(cfg)

    return run_main(run)


if __name__ == "__main__":
    sys.exit(main())
