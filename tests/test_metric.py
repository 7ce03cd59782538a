import numpy as np
import pytest

from src.metric import TopK


def count(logits, labels, batch):
    metric = TopK()
    for start in range(0, len(labels), batch):
        metric.update(logits[start : start + batch], labels[start : start + batch])
    return metric.result()


@pytest.mark.parametrize("batch", [1, 8, 37, 64])
def test_counts_equal_a_sort_in_numpy_for_any_batch_size(batch):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(37, 11)).astype(np.float32), rng.integers(0, 11, 37).astype(np.int32)
    order = np.argsort(-logits, axis=1)
    result = count(logits, labels, batch)
    assert result["samples"] == 37
    assert result["top1"] == pytest.approx((order[:, 0] == labels).mean())
    assert result["top5"] == pytest.approx((order[:, :5] == labels[:, None]).any(axis=1).mean())


def test_padding_images_are_not_counted():
    logits = np.array([[0, 1, 0, 0, 0], [9, 0, 0, 0, 0], [0, 0, 0, 0, 9]], np.float32)
    result = count(logits, np.array([1, -1, -1]), 3)
    assert result == {"top1": 1.0, "top5": 1.0, "samples": 1}


def test_equal_logits_rank_by_class_number():
    logits = np.zeros((7, 7), np.float32)
    result = count(logits, np.arange(7), 7)
    assert result["top1"] == pytest.approx(1 / 7)
    assert result["top5"] == pytest.approx(5 / 7)


def test_not_a_number_is_wrong():
    logits = np.full((2, 6), np.nan, np.float32)
    assert count(logits, np.array([0, 5]), 2)["top5"] == 0


def test_top5_needs_five_classes():
    assert count(np.zeros((3, 4), np.float32), np.array([0, 1, 2]), 2)["top5"] is None


def test_counts_of_ranks_add_up_exactly():
    ranks = [TopK(), TopK()]
    for number, metric in zip((2049, 70_001), ranks):
        metric.update(np.eye(6, dtype=np.float32)[np.zeros(number, int)], np.zeros(number, np.int32))
    whole = TopK()
    whole.classes = 6
    whole.counts = ranks[0].counts + ranks[1].counts
    assert whole.result() == {"top1": 1.0, "top5": 1.0, "samples": 72_050}
