"""Exports a network: `python export.py --checkpoint_path outputs/<run>/best.ckpt --eval_path flowers/val`."""

from __future__ import annotations

import sys

from src.errors import run_main
from src.logging import get_logger
from src.model_utils.config import load_config
from src.model_utils.moxing_adapter import moxing_wrapper
from src.signals import StopSignals


def main(argv=None) -> int:
    """Export as the configuration says; return the exit code."""
    signals = StopSignals()
    with signals.watched():
        return run_main(lambda: _run(argv, signals))


def _run(argv, signals: StopSignals) -> None:
    cfg = load_config(
        argv,
        prog="export.py",
        description="Export weights as MINDIR, ONNX or AIR, compared with the network on your images.",
        defaults={"batch_size": 1},
    )
    with signals.held():
        from src.exporter import export  # after the checks: MindSpore takes seconds to import

    get_logger()
    result = moxing_wrapper(export)(cfg)
    print(f"exported {result.path}, {result.path.stat().st_size:,} bytes{result.beside}")
    if result.largest_difference is not None:
        print(
            f"compared on {result.images} images: logits differ by {result.largest_difference:.2g} at most, "
            f"top-1 equal on {100 * result.top1_agreement:.1f} %"
        )


if __name__ == "__main__":
    sys.exit(main())
