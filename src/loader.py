"""Batches for training and evaluation, decoded in threads (Pillow releases the GIL).

Every random draw is a pure function of the seed and of the position in the stream, so that the result does
not depend on the number of threads and any step can be made again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from typing import Protocol

import numpy as np
from PIL import Image

from src.errors import UserError
from src.image_io import BadImageError
from src.mixup import mix_batch
from src.photo import Photo
from src.pixels import PLAIN, Pixels
from src.streams import AUGMENT, LAMBDA, SHUFFLE
from src.transforms import Transform, check_statistics

log = logging.getLogger(__name__)

PREFETCH = 2  # whole batches that are decoded ahead
ROWS = 8  # of a batch that a thread takes at once, at most
PADDING = -1  # label, and index, of a row that holds no image


class Samples(Protocol):
    """A data set, such as `ImageFolder` or `Cifar`."""

    names: Sequence[str]
    labels: np.ndarray

    def __len__(self) -> int:
        """Return the number of images."""

    def image(self, index: int) -> Image.Image | Photo:
        """Return an RGB image or raise `BadImageError`, which a `Photo` may do when it is resized."""


class _Batches:
    """What training and evaluation share: the rows of a rank, decoding in threads, the list of broken images.

    Step s takes batch_size * device_num consecutive positions of the stream; rank r has every device_num-th
    of them, from the r-th on. Subclasses say which samples they are (`indices`) and what each gives (`_row`).

    Attributes:
        bad_images: name and reason of each broken image that was skipped so far.
    """

    def __init__(
        self,
        samples: Samples,
        transform: Transform,
        *,
        batch_size: int,
        rank: int = 0,
        device_num: int = 1,
        mean: Sequence[float],
        std: Sequence[float],
        num_workers: int,
        on_bad_image: str = "stop",
        pixels: Pixels = PLAIN,
    ):
        if batch_size < 1 or num_workers < 1:
            raise UserError(f"batch_size and num_workers start at 1, not {batch_size} and {num_workers}")
        if not 0 <= rank < device_num:
            raise UserError(f"the rank must be in 0..{device_num - 1} for {device_num} devices, not {rank}")
        if on_bad_image not in ("stop", "skip"):
            raise UserError(f"on_bad_image must be stop or skip, not {on_bad_image!r}")
        check_statistics(mean, std)
        self.bad_images: dict[str, str] = {}
        self._lock = threading.Lock()
        self._samples, self._transform = samples, transform
        self._batch_size, self._rank, self._device_num = batch_size, rank, device_num
        self._mean, self._std, self._operators = mean, std, pixels
        self._num_workers, self._skip = num_workers, on_bad_image == "skip"

    def _positions(self, step: int) -> np.ndarray:
        first = step * self._batch_size * self._device_num + self._rank
        return first + self._device_num * np.arange(self._batch_size)

    def _pixels(self, index: int, rng: np.random.Generator | None) -> np.ndarray | None:
        """Return an image, transformed, or nothing for a broken one that is to be skipped."""
        name = self._samples.names[index]
        if name in self.bad_images:
            return None
        try:
            return self._transform(self._samples.image(index), rng)
        except BadImageError as error:
            if not self._skip:
                raise BadImageError(f"{error}, or set on_bad_image to skip") from error
            with self._lock:
                if name not in self.bad_images:
                    self.bad_images[name] = str(error)
                    log.warning("skipped: %s", error)
            return None

    def _run(self, steps: Iterable[int]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield (step, float32 images (B, 3, h, w), int32 labels (B,)), decoding `PREFETCH` batches ahead."""
        pool = ThreadPoolExecutor(self._num_workers, "decode")
        pending = deque()
        try:
            for step in steps:
                pending.append(self._submit(pool, step))
                if len(pending) > PREFETCH:
                    yield self._collect(*pending.popleft())
            while pending:
                yield self._collect(*pending.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _submit(self, pool: ThreadPoolExecutor, step: int):
        images = np.empty((self._batch_size, 3, *self._transform.crop), np.float32)
        labels = np.full(self._batch_size, PADDING, np.int32)

        plan = list(zip(range(self._batch_size), self.indices(step).tolist(), self._positions(step).tolist()))

        def fill(part: slice) -> None:
            for row, index, position in plan[part]:
                found = self._row(index, position)
                if found is None:
                    images[row] = 0
                else:
                    pixels, labels[row] = found
                    self._operators.normalise(pixels, self._mean, self._std, out=images[row])

        length = max(1, min(ROWS, self._batch_size // self._num_workers))
        parts = [slice(first, first + length) for first in range(0, self._batch_size, length)]
        return step, images, labels, [pool.submit(fill, part) for part in parts]

    def _collect(self, step: int, images: np.ndarray, labels: np.ndarray, parts: Iterable[Future]):
        for part in parts:
            part.result()
        return step, images, labels


class TrainStream(_Batches):
    """The endless stream of training images: pass after pass without a gap, each a new permutation.

    Nothing is dropped: every image comes once in each pass, for any batch size and number of devices. A
    data set smaller than the batch fills it several times (few-shot).
    """

    def __init__(
        self,
        samples: Samples,
        transform: Transform,
        *,
        seed: int,
        class_num: int,
        indices: Sequence[int] | None = None,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        **options,
    ):
        """Prepare the stream; nothing is read yet.

        Args:
            samples: the data set.
            transform: called with a generator that depends on `seed` and the position only.
            seed: from 0 up, the same on all ranks.
            class_num: width of the soft labels.
            indices: the samples to use, by default all.
            mixup: alpha of mixup's Beta distribution, 0 for none.
            cutmix: alpha of CutMix's. With both, each batch has one of the two, either equally often
                (arXiv:2012.12877).
            **options: batch_size, rank, device_num, mean, std, num_workers, on_bad_image (`stop`, or `skip`:
                the next image that can be read takes the place), pixels (the operators that normalise).
        """
        super().__init__(samples, transform, **options)
        self._chosen = np.arange(len(samples)) if indices is None else np.sort(indices)
        highest = int(samples.labels[self._chosen].max())
        if seed < 0 or mixup < 0 or cutmix < 0:
            raise UserError(f"seed, mixup and cutmix must not be negative, not {seed}, {mixup} and {cutmix}")
        if highest >= class_num:
            raise UserError(f"class_num is {class_num}, but the data set has class {highest}; raise it")
        self._seed, self._class_num, self._alphas = seed, class_num, (mixup, cutmix)
        self._order: tuple[int, np.ndarray] = (-1, self._chosen)

    def indices(self, step: int) -> np.ndarray:
        """Return the samples of one step of this rank, shape (B,)."""
        passes, offsets = np.divmod(self._positions(step), len(self._chosen))
        chosen = np.empty(self._batch_size, np.int64)
        for number in np.unique(passes):
            rows = passes == number
            chosen[rows] = self._pass(int(number))[offsets[rows]]
        return chosen

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return one step: see `iterate`."""
        (batch,) = self.iterate(step, step + 1)
        return batch

    def iterate(self, start_step: int, stop_step: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the steps in order: float32 images (B, 3, h, w), and labels.

        The labels are int32 of shape (B,) or, when images are mixed, float32 distributions (B, class_num).

        Raises:
            BadImageError: an image cannot be read, and on_bad_image is `stop`.
            UserError: no image can be read.
        """
        with closing(self._run(range(start_step, stop_step))) as batches:
            for step, images, labels in batches:
                if any(self._alphas):
                    rng = np.random.default_rng((self._seed, LAMBDA, step))  # the same on all ranks
                    images, labels = mix_batch(images, labels, self._class_num, *self._alphas, rng)
                yield images, labels

    def _pass(self, number: int) -> np.ndarray:
        known, order = self._order
        if known != number:
            order = np.random.default_rng((self._seed, SHUFFLE, number)).permutation(self._chosen)
            self._order = (number, order)
        return order

    def _row(self, index: int, position: int) -> tuple[np.ndarray, int]:
        place = np.searchsorted(self._chosen, index)
        for candidate in chain(self._chosen[place:], self._chosen[:place]):
            rng = np.random.default_rng((self._seed, AUGMENT, position))
            pixels = self._pixels(candidate, rng)
            if pixels is not None:
                return pixels, self._samples.labels[candidate]
        name, reason = next(iter(self.bad_images.items()))
        raise UserError(f"none of {len(self._chosen)} training images can be read, such as {name}: {reason}")


class EvalBatches(_Batches):
    """All images once, over all ranks; every rank has the same number of batches.

    Rows without an image (the end of the last batch; broken images with on_bad_image `skip`) are zeros with
    label -1. The keywords are the `options` of `TrainStream`.
    """

    def __len__(self) -> int:
        return -(-len(self._samples) // (self._batch_size * self._device_num))

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield float32 images (B, 3, h, w) and int32 labels (B,). Raises `BadImageError`."""
        with closing(self._run(range(len(self)))) as batches:
            yield from ((images, labels) for _, images, labels in batches)

    def indices(self, step: int) -> np.ndarray:
        """Return the samples of one step of this rank, shape (B,); -1 is padding."""
        positions = self._positions(step)
        return np.where(positions < len(self._samples), positions, PADDING)

    def _row(self, index: int, position: int) -> tuple[np.ndarray, int] | None:
        pixels = None if index == PADDING else self._pixels(index, None)
        return None if pixels is None else (pixels, self._samples.labels[index])
