"""Evaluates saved weights: `python eval.py --checkpoint_path outputs/RUN/best.ckpt --dataset_path FOLDER`."""

from __future__ import annotations

import sys

from src.errors import run_main
from src.logging import get_logger
from src.model_utils.config import load_config
from src.model_utils.local_adapter import get_place
from src.model_utils.moxing_adapter import moxing_wrapper
from src.signals import StopSignals


def main(argv=None) -> int:
    """Evaluate as the configuration says, print the accuracy; return the exit code."""
    signals = StopSignals()

    def run():
        cfg = load_config(
            argv,
            prog="eval.py",
            description="Evaluate saved weights on a folder of images, every image once.",
        )
        with signals.held():
            from src.evaluator import evaluate_checkpoint

        rank = get_place().rank
        get_logger(rank=rank, stream=sys.stderr)  # standard output holds the answer alone
        result = moxing_wrapper(evaluate_checkpoint)(cfg)
        if rank:
            return  # every rank knows the result of all images
        top5 = f"n/a ({result.class_num} classes)" if result.top5 is None else f"{result.top5:.6f}"
        print(f"accuracy={result.top1:.6f}")
        print(f"top5_accuracy={top5}")
        print(f"evaluated {result.samples}/{result.total} images")

    with signals.watched():
        return run_main(run)


if __name__ == "__main__":
    sys.exit(main())
