import numpy as np
import pytest

from src.mixup import draw_lambda, mixup


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0])
def test_lambda_has_mean_and_variance_of_the_beta_distribution(alpha):
    rng = np.random.default_rng(0)
    draws = [draw_lambda(alpha, rng) for _ in range(20_000)]
    assert abs(np.mean(draws) - 0.5) < 0.01
    assert np.var(draws) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


def test_a_tiny_alpha_never_gives_nan():
    rng = np.random.default_rng(0)
    draws = np.array([draw_lambda(0.01, rng) for _ in range(5000)])
    assert ((draws >= 0) & (draws <= 1)).all()


def test_alpha_zero_is_one_and_draws_nothing():
    rng = np.random.default_rng(3)
    assert draw_lambda(0.0, rng) == 1.0
    assert rng.random() == np.random.default_rng(3).random()


def test_images_and_labels_are_mixed_with_the_same_weight():
    images = np.arange(2 * 3 * 1 * 2, dtype=np.float32).reshape(2, 3, 1, 2)
    labels = np.eye(2, 5, dtype=np.float32)
    mixed, soft = mixup(images, labels, 0.25, np.array([1, 0]))
    assert np.array_equal(mixed[0], 0.25 * images[0] + 0.75 * images[1])
    assert np.array_equal(soft, [[0.25, 0.75, 0, 0, 0], [0.75, 0.25, 0, 0, 0]])
    assert mixed.dtype == soft.dtype == np.float32
    assert images[0, 0, 0, 1] == 1  # the input is left alone


@pytest.mark.parametrize("rows", [1, 7])
def test_one_row_and_odd_batches_keep_sums_of_one(rows):
    rng = np.random.default_rng(0)
    labels = np.eye(10, dtype=np.float32)[rng.integers(10, size=rows)]
    for lam in (0.0, 0.3, 1.0, 1e-30, 0.123456789):
        _, soft = mixup(np.ones((rows, 3, 1, 1), np.float32), labels, lam, rng.permutation(rows))
        assert np.allclose(soft.sum(1), 1, atol=1e-6)
        assert (soft >= 0).all()


def test_weight_one_leaves_everything_as_it_was():
    images = np.random.default_rng(0).normal(size=(4, 3, 2, 1)).astype(np.float32)
    mixed, soft = mixup(images, np.eye(4, dtype=np.float32), 1.0, np.array([3, 2, 1, 0]))
    assert np.array_equal(mixed, images)
    assert np.array_equal(soft, np.eye(4))
