"""Turns scikit-learn's handwritten digits into an image folder: `python scripts/make_digits.py FOLDER`.

1,797 real digits of 8x8 pixels (UCI optical recognition of handwritten digits, its test part), ten classes,
four fifths for training and one fifth for evaluation, each class alike.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SIDE = 32  # pixels of the images that are written


def main() -> None:
    """Write FOLDER/train/<digit>/<number>.png and FOLDER/val/<digit>/<number>.png."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    digits = load_digits()
    grey = np.round(digits.images * 255 / 16).astype(np.uint8)  # 0..16 -> 0..255
    train, val = train_test_split(np.arange(len(grey)), test_size=0.2, stratify=digits.target, random_state=0)
    for split, indices in (("train", train), ("val", val)):
        for index in indices:
            path = folder / split / str(digits.target[index]) / f"{index:04d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(grey[index]).resize((SIDE, SIDE), Image.Resampling.BILINEAR).save(path)


if __name__ == "__main__":
    main()
