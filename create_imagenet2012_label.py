"""Writes an image folder's labels as JSON: `python create_imagenet2012_label.py --img_path imagenet/val`."""

from __future__ import annotations

import sys
from pathlib import Path

from src.errors import ArgumentParser, UserError, one_line, run_main
from src.image_folder import ImageFolder
from src.infer_result import labels_text


def main(argv=None) -> int:
    """Write the file; return the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv) -> None:
    parser = ArgumentParser(description="Write {path of an image: its label} of a folder of class folders.")
    parser.add_argument(
        "--img_path", type=Path, required=True, help="folder that holds a folder for each class"
    )
    parser.add_argument(
        "--label_path", type=Path, default=Path("imagenet_label.json"), help="default: %(default)s"
    )
    args = parser.parse_args(argv)
    samples = ImageFolder(args.img_path)
    labels = dict(zip(samples.names, samples.labels.tolist()))  # by path: names repeat over the classes
    try:
        args.label_path.write_text(labels_text(labels), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {args.label_path}: {error.strerror}; choose another place") from None
    print(one_line(f"{args.label_path}: {len(labels)} images of {len(samples.class_names)} classes"))


if __name__ == "__main__":
    sys.exit(main())
