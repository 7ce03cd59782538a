"""Convert Google's BiT and ViT weights (`.npz`) to a MindSpore checkpoint.

python convert_npz2ckpt.py --npz_path BiT-M-R50x1.npz --ckpt_path bit_m_r50x1.ckpt
"""

from __future__ import annotations

import sys
from pathlib import Path

from src.array_io import count
from src.convert import convert
from src.errors import ArgumentParser, one_line, run_main
from src.weight_file import open_weights


def main(argv=None) -> int:
    """Parse the arguments, convert, print one summary; return the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: list[str] | None) -> None:
    parser = ArgumentParser(description="Convert Google's BiT or ViT weights to .ckpt or .safetensors.")
    parser.add_argument("--npz_path", type=Path, required=True, help="Google's file, such as BiT-M-R50x1.npz")
    parser.add_argument("--ckpt_path", type=Path, help=".ckpt or .safetensors; default: beside the input")
    args = parser.parse_args(argv)
    output = args.ckpt_path or args.npz_path.with_suffix(".ckpt")
    record = convert(args.npz_path, output)
    with open_weights(output) as weights:  # proves that the file can be read
        parameters = sum(count(shape) for shape in weights.shapes.values())
    print(f"network:    {record['network']}, {parameters:,} parameters in {len(weights.shapes)} arrays")
    print(f"classes:    {record['class_num']}")
    print(one_line(f"source:     {args.npz_path}, sha256 {record['sha256']}"))
    print(one_line(f"written:    {output}, {output.stat().st_size:,} bytes"))


if __name__ == "__main__":
    sys.exit(main())
