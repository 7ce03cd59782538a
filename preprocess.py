"""Turns images into the tensors that the C++ program reads; needs no MindSpore.

python preprocess.py --model_path vit.mindir --eval_path flowers/val --preprocess_path preprocess_Result
"""

from __future__ import annotations

import sys

from src.errors import run_main
from src.logging import get_logger
from src.model_utils.config import load_config
from src.preprocessor import preprocess


def main(argv=None) -> int:
    """Write the tensors and their labels; return the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv) -> None:
    cfg = load_config(
        argv,
        prog="preprocess.py",
        description="Turn images into tensors for the C++ program, as the exported network wants them.",
        required=("model_path",),
    )
    get_logger()
    preprocess(cfg)


if __name__ == "__main__":
    sys.exit(main())
