import numpy as np
import pytest

from src.errors import UserError
from src.few_shot import select_few_shot

NAMES = ("a", "b", "c")
LABELS = np.array([2, 0, 1, 0, 2, 1, 0, 2, 2, 1, 0], np.int32)


def test_every_class_gets_its_examples_in_sorted_order():
    for seed in range(10):
        chosen = select_few_shot(LABELS, NAMES, 2, seed)
        assert sorted(LABELS[chosen]) == [0, 0, 1, 1, 2, 2]
        assert (np.diff(chosen) > 0).all()


def test_the_seed_alone_decides():
    labels = np.repeat(np.arange(3), 100)
    np.random.seed(0)  # noqa: NPY002, the global state must not matter
    first = select_few_shot(labels, NAMES, 5, seed=1)
    np.random.seed(1)  # noqa: NPY002
    assert np.array_equal(select_few_shot(labels, NAMES, 5, seed=1), first)
    assert not np.array_equal(select_few_shot(labels, NAMES, 5, seed=2), first)


def test_every_example_of_a_class_can_be_chosen():
    seen = {i for seed in range(60) for i in select_few_shot(LABELS, NAMES, 1, seed)}
    assert seen == set(range(len(LABELS)))


def test_a_class_with_too_few_images_is_named_with_both_counts():
    with pytest.raises(UserError, match="class b has 3 images, but examples_per_class is 4"):
        select_few_shot(LABELS, NAMES, 4, seed=0)


def test_a_class_without_images_is_named():
    with pytest.raises(UserError, match="class d has 0 images"):
        select_few_shot(LABELS, (*NAMES, "d"), 1, seed=0)


def test_less_than_one_example_is_refused():
    with pytest.raises(UserError, match="at least 1"):
        select_few_shot(LABELS, NAMES, 0, seed=0)
