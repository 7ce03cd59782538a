"""Judges the results of the C++ program; needs no MindSpore.

python postprocess.py --model_path vit.mindir --preprocess_path preprocess_Result --result_path result_Files
"""

from __future__ import annotations

import sys

from src.errors import run_main
from src.infer_result import judge, read_labels
from src.model_utils.config import load_config
from src.sidecar import read_sidecar


def main(argv=None) -> int:
    """Print the accuracy; return the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv) -> None:
    cfg = load_config(
        argv,
        prog="postprocess.py",
        description="Judge the results of the C++ program by the labels of preprocess.py.",
        required=("model_path",),
    )
    class_num = read_sidecar(cfg.model_path)["class_num"]
    result = judge(cfg.result_path, read_labels(cfg.preprocess_path), class_num)
    top5 = f"n/a ({class_num} classes)" if result["top5"] is None else round(result["top5"], 6)
    print(
        f"Total data: {result['samples']}, top1 accuracy: {round(result['top1'], 6)}, top5 accuracy: {top5}"
    )


if __name__ == "__main__":
    sys.exit(main())
