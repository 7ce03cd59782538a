import threading
import time

import pytest
from numbered_images import Numbered, decode_threads, shown, stream

from src.errors import UserError
from src.image_io import BadImageError
from src.loader import PREFETCH


def test_a_broken_image_stops_training_with_its_path_and_the_way_out():
    with pytest.raises(BadImageError, match=r"6\.png.*on_bad_image to skip"):
        list(stream(Numbered(9, bad=(6,))).iterate(0, 4))
    assert not decode_threads()


def test_a_skipped_image_is_replaced_by_the_next_that_can_be_read(caplog):
    data = Numbered(9, bad=(3, 4, 8))
    train = stream(data, batch_size=9, on_bad_image="skip")
    for step, (images, labels) in enumerate(train.iterate(0, 4)):
        expected = [{3: 5, 4: 5, 8: 0}.get(i, i) for i in train.indices(step)]
        assert shown(images) == expected
        assert labels.tolist() == [i % 5 for i in expected]
    assert sorted(train.bad_images) == ["3.png", "4.png", "8.png"]
    assert len(caplog.records) == 3  # one for each file, in spite of four passes
    assert data.reads.count(3) <= 2  # once by each thread at most


def test_two_threads_that_meet_at_a_broken_image_warn_once(caplog):
    data = Numbered(2, bad=(0,))
    meeting, quick = threading.Barrier(2, timeout=5), data.image

    def image(index):
        if index == 0:
            meeting.wait()
        return quick(index)

    data.image = image
    stream(data, on_bad_image="skip").batch(0)
    assert len(caplog.records) == 1


def test_a_replacement_comes_from_the_chosen_samples():
    train = stream(Numbered(20, bad=(5,)), batch_size=3, indices=[11, 5, 2], on_bad_image="skip")
    assert sorted(shown(train.batch(0)[0])) == [2, 11, 11]


def test_nothing_but_broken_images_is_an_error():
    with pytest.raises(UserError, match="none of 9 training images can be read"):
        stream(Numbered(9, bad=range(9)), on_bad_image="skip").batch(0)


def test_faults_of_the_transform_reach_the_consumer():
    def broken(image, rng):
        raise ZeroDivisionError("ours")

    broken.crop = (2, 3)
    with pytest.raises(ZeroDivisionError, match="ours"):
        stream(Numbered(9), transform=broken).batch(0)
    assert not decode_threads()


def test_batches_are_decoded_ahead_but_not_without_bound():
    data = Numbered(100)
    batches = stream(data, batch_size=10).iterate(0, 10)
    next(batches)
    deadline = time.monotonic() + 5
    while len(data.reads) < 10 * (1 + PREFETCH) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(data.reads) == 10 * (1 + PREFETCH)
    batches.close()


def test_leaving_early_ends_the_threads_and_drops_the_waiting_work():
    data = Numbered(200)
    quick = data.image
    data.image = lambda index: (time.sleep(0.01), quick(index))[1]
    batches = stream(data, batch_size=50).iterate(0, 100)
    next(batches)
    assert decode_threads()
    batches.close()
    assert not decode_threads()
    assert len(data.reads) < 150


def test_an_interrupt_in_the_consumer_ends_the_threads():
    def consume():
        for _ in stream(Numbered(50)).iterate(0, 100):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert not decode_threads()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"num_workers": 0}, "num_workers"),
        ({"rank": 2, "device_num": 2}, "rank"),
        ({"on_bad_image": "ignore"}, "stop or skip"),
        ({"seed": -1}, "seed"),
        ({"mixup": -0.1}, "mixup"),
        ({"class_num": 4}, "class_num is 4"),
        ({"std": (1, 0, 1)}, "std positive"),
    ],
)
def test_impossible_settings_are_refused(changes, words):
    with pytest.raises(UserError, match=words):
        stream(Numbered(9), **changes)
