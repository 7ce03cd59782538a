"""A data set of one-coloured images, and loaders of it, for the tests of the loader."""

import threading

import numpy as np
from PIL import Image

from src.image_io import BadImageError
from src.loader import EvalBatches, TrainStream
from src.transforms import Resize

UNIT = {"mean": (0, 0, 0), "std": (1, 1, 1)}


class Numbered:
    """Image i is filled with colour i; those in `bad` cannot be read."""

    def __init__(self, count, bad=(), classes=5):
        self.names = [f"{i}.png" for i in range(count)]
        self.labels = np.arange(count, dtype=np.int32) % classes
        self.bad, self.reads = bad, []

    def __len__(self):
        return len(self.names)

    def image(self, index):
        self.reads.append(int(index))
        if index in self.bad:
            raise BadImageError(f"cannot read image {index}.png: broken")
        return Image.new("RGB", (3, 2), (int(index),) * 3)


def noise_images(count):
    data = Numbered(count)
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8)) for _ in range(count)]
    data.image = images.__getitem__
    return data


def stream(samples, **changes):
    transform = changes.pop("transform", Resize(crop=(2, 3)))
    options = {"batch_size": 4, "seed": 0, "class_num": 5, "num_workers": 2, **UNIT, **changes}
    return TrainStream(samples, transform, **options)


def evaluation(samples, **changes):
    return EvalBatches(samples, Resize(crop=(2, 3)), **{"batch_size": 4, "num_workers": 2, **UNIT, **changes})


def shown(images):
    return images[:, 0, 0, 0].astype(int).tolist()


def decode_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("decode")]
