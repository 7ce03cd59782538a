"""Real CIFAR-10 images in the order that the golden training curves take them in, where they are at hand."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest
from PIL import Image
from support import SHARED

SAMPLE = SHARED / "data" / "cifar10_sample.zip"


def real_batches(steps: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Batches of real images, as the golden files describe them: image i is of class i % 10.

    Returns:
        images (steps, batch, 3, 32, 32), float32 in [-1, 1], and labels (steps, batch), int32. Skips the test
        when there is no sample.
    """
    if not SAMPLE.exists():
        pytest.skip("the sample of CIFAR-10 images is not at hand")
    with zipfile.ZipFile(SAMPLE) as archive:
        names = sorted(
            n for n in archive.namelist() if n.startswith("cifar10/train/") and not n.endswith("/")
        )
        folders = sorted({n.split("/")[2] for n in names})
        by_class = [[n for n in names if n.split("/")[2] == folder] for folder in folders]
        images = np.stack(
            [np.asarray(Image.open(archive.open(by_class[i % 10][i // 10]))) for i in range(steps * batch)]
        )
    images = ((images.astype(np.float32) - 127.5) / 127.5).transpose(0, 3, 1, 2)
    labels = (np.arange(steps * batch) % 10).astype(np.int32)
    return images.reshape(steps, batch, 3, 32, 32), labels.reshape(steps, batch)
