"""The way of whole batches into `Model.train`: an iterator for MindSpore's thread, and its data set."""

from __future__ import annotations

import threading

import mindspore.dataset as ds

from src.loader import TrainStream


class StepSource:
    """Feeds a `GeneratorDataset` with the steps of a run, from `first_step` on, an epoch an iteration.

    MindSpore reports an exception of a generator as pages of its own text. This one ends the epoch instead
    and keeps the exception in `error`, for `raise_error` to raise where the user sees it whole.
    """

    def __init__(self, stream: TrainStream, *, first_step: int, total_steps: int, steps_per_epoch: int):
        self.epochs = -(-(total_steps - first_step) // steps_per_epoch)
        self._batches = stream.iterate(first_step, first_step + steps_per_epoch * self.epochs)
        self._steps_per_epoch = steps_per_epoch
        self._lock = threading.Lock()  # MindSpore iterates in a thread of its own
        self._closed = False
        self.error: Exception | None = None

    def __len__(self) -> int:
        return self._steps_per_epoch

    def __iter__(self):
        for _ in range(self._steps_per_epoch):
            with self._lock:
                if self._closed:
                    return
                try:
                    batch = next(self._batches)
                except Exception as error:
                    self.error = error
                    return
            yield batch

    def raise_error(self) -> None:
        """Raise what ended the stream, if anything did."""
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Stop the decoding threads, whatever they are at."""
        self._closed = True
        with self._lock:
            self._batches.close()


def as_dataset(source: StepSource) -> ds.GeneratorDataset:
    """Wrap whole batches for `Model.train`: columns image (N, 3, H, W) float32 and label."""
    return ds.GeneratorDataset(
        source, ["image", "label"], shuffle=False, num_parallel_workers=1, python_multiprocessing=False
    )
