"""Seeded inputs, small data sets and the places of reference material, shared by the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from src.weight_file import SUFFIXES, open_weights

GOLDEN = Path(__file__).parent / "golden"
SHARED = Path(__file__).parents[2] / "shared"  # real images and reference runs, where they are at hand


SIDECAR = {
    "network": "bit_tiny",
    "input": {"shape": [1, 3, 12, 16]},
    "preprocess": {
        "eval_image_size": [12, 16],
        "eval_crop_ratio": 0.875,
        "interpolation": "BICUBIC",
        "image_mean": [120.0, 110.0, 100.0],
        "image_std": [60.0, 50.0, 40.0],
    },
}


def uniform_images(count, height, width, seed) -> np.ndarray:
    """(N, 3, H, W) float32 in [-1, 1)."""
    return np.random.RandomState(seed).uniform(-1, 1, (count, 3, height, width)).astype(np.float32)


def assert_golden(logits: np.ndarray, case: dict) -> None:
    """Compare logits of shape (N, K) with a case of a golden file of Google's code."""
    first = np.array(case["logits_first"])
    np.testing.assert_allclose(logits[:, : first.shape[1]], first, rtol=0, atol=1e-4)
    np.testing.assert_allclose(
        logits.sum(1), case["logits_sum"], rtol=0, atol=1e-6 * case["num_classes"] + 1e-4
    )
    assert np.argsort(-logits, axis=1)[:, :5].tolist() == case["top5"]


def colour_folder(
    root: Path, *, classes=("blue", "green", "red"), per_class=4, size=(20, 24), seed=0
) -> Path:
    """A folder of class folders whose classes differ by colour: a network learns them in a few steps."""
    rng = np.random.default_rng(seed)
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for index in range(per_class):
            pixels = rng.integers(0, 120, (*size, 3))
            pixels[..., label % 3] += 60 + 70 * (label // 3)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{index}.png")
    return root


def same_files(one: Path, other: Path) -> None:
    """Compare the weight files of two runs: names of files and arrays, every bit, what the records say."""
    names = sorted(path.name for path in one.iterdir() if path.suffix in SUFFIXES)
    assert names == sorted(path.name for path in other.iterdir() if path.suffix in SUFFIXES)
    for name in names:
        with open_weights(one / name) as first, open_weights(other / name) as second:
            assert first.shapes == second.shapes
            for array, weight in first:
                np.testing.assert_array_equal(second.read(array), weight, err_msg=f"{name}: {array}")
            records = [dict(file.record) for file in (first, second)]
            for record in records:
                record["training"] = record.get("training", {}).get("progress")
            assert records[0] == records[1]
