import logging
import math

import numpy as np
import pytest
from numbered_images import Numbered, evaluation, shown

from src.image_io import BadImageError


@pytest.mark.parametrize("device_num", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 8, 37, 64])
def test_evaluation_sees_every_image_once_over_all_ranks(batch_size, device_num):
    ranks = [
        evaluation(Numbered(37), batch_size=batch_size, rank=rank, device_num=device_num)
        for rank in range(device_num)
    ]
    assert {len(rank) for rank in ranks} == {math.ceil(37 / (batch_size * device_num))}
    seen = []
    for rank in ranks:
        batches = list(rank)
        assert len(batches) == len(rank)
        for images, labels in batches:
            assert images.shape == (batch_size, 3, 2, 3)
            assert labels.dtype == np.int32
            assert (images[labels == -1] == 0).all()
            real = np.array(shown(images))[labels >= 0]
            assert (labels[labels >= 0] == real % 5).all()
            seen += real.tolist()
    assert sorted(seen) == list(range(37))


def test_padding_is_zero_after_normalising():
    ((images, labels),) = evaluation(Numbered(3), mean=(127.5,) * 3, std=(127.5,) * 3)
    assert labels.tolist() == [0, 1, 2, -1]
    assert (images[0] == -1).all()
    assert (images[3] == 0).all()


def test_a_skipped_image_of_the_evaluation_is_padding_and_is_counted(caplog):
    batches = evaluation(Numbered(6, bad=(1, 5)), on_bad_image="skip")
    for _ in range(2):
        labels = np.concatenate([labels for _, labels in batches])
        assert labels.tolist() == [0, -1, 2, 3, 4, -1, -1, -1]
    assert list(batches.bad_images) == ["1.png", "5.png"]
    assert "broken" in batches.bad_images["1.png"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_a_broken_image_stops_the_evaluation_with_its_path():
    with pytest.raises(BadImageError, match=r"5\.png"):
        list(evaluation(Numbered(6, bad=(5,))))
