import threading
import time

import numpy as np
import pytest
from support import colour_folder

from src.errors import UserError
from src.image_folder import ImageFolder
from src.loader import TrainStream
from src.step_source import StepSource, as_dataset
from src.transforms import RandomCrop, TrainTransform


def stream_of(root):
    return TrainStream(
        ImageFolder(root),
        TrainTransform(RandomCrop(resize=(10, 12), crop=(8, 9))),
        batch_size=4,
        seed=1,
        class_num=3,
        mean=(127.5,) * 3,
        std=(127.5,) * 3,
        num_workers=2,
    )


def test_mindspore_reads_the_batches_of_the_stream_in_order_from_any_step(tmp_path):
    stream = stream_of(colour_folder(tmp_path / "train", per_class=3))
    source = StepSource(stream, first_step=1, total_steps=6, steps_per_epoch=2)
    assert source.epochs == 3
    loaded = as_dataset(source)
    assert loaded.get_dataset_size() == 2
    iterator = loaded.create_tuple_iterator(num_epochs=3, output_numpy=True)
    rows = [row for _ in range(3) for row in iterator]
    assert len(rows) == 6
    for step, (images, labels) in enumerate(rows, start=1):
        expected = stream.batch(step)
        np.testing.assert_array_equal(images, expected[0])
        np.testing.assert_array_equal(labels, expected[1])
    source.raise_error()


def test_closing_waits_for_the_reader_and_ends_it(tmp_path):
    """MindSpore reads in a thread of its own; a generator must not be closed while it runs."""
    stream = stream_of(colour_folder(tmp_path / "train", per_class=3))
    decode = stream._samples.image
    stream._samples.image = lambda index: time.sleep(0.05) or decode(index)
    source = StepSource(stream, first_step=0, total_steps=100, steps_per_epoch=100)
    reader = threading.Thread(target=lambda: [None for _ in source])
    reader.start()
    time.sleep(0.2)
    source.close()
    reader.join(5)
    assert not reader.is_alive()
    assert source.error is None


def test_a_broken_image_ends_the_stream_and_is_raised_where_the_user_sees_it(tmp_path):
    root = colour_folder(tmp_path / "train", per_class=3)
    (root / "red" / "1.png").write_bytes(b"no image")
    source = StepSource(stream_of(root), first_step=0, total_steps=5, steps_per_epoch=5)
    rows = list(source)
    assert len(rows) < 5
    with pytest.raises(UserError, match=r"red/1\.png"):
        source.raise_error()
