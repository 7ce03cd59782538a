import numpy as np
import pytest

from src.mixup import cutmix, draw_lambda, mixup


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


def black_and_white(height, width):
    """Image 0 is black, image 1 white; each is the other's partner, and their labels are 0 and 1."""
    images = np.repeat(np.float32([0, 1]), 3 * height * width).reshape(2, 3, height, width)
    return images, np.eye(2, dtype=np.float32), np.array([1, 0])


def drawn_boxes(height, width, lam, count):
    """Yield where image 0 was replaced, a boolean (h, w), and its label."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        images, labels = cutmix(*(black_and_white(height, width)[:2]), lam, np.array([1, 0]), rng)
        assert np.array_equal(images[0], 1 - images[1])  # one box for the batch
        assert np.array_equal(labels[0], labels[1, ::-1])
        assert (images[0] == images[0, :1]).all()  # and for the three colours
        yield images[0, 0] == 1, labels[0]


@pytest.mark.parametrize(("height", "width"), [(4, 16), (7, 5), (1, 1), (1, 9)])
@pytest.mark.parametrize("lam", [0.0, 1e-30, 0.2, 0.5, 0.9, 1.0])
def test_the_share_of_replaced_pixels_is_the_label_weight(height, width, lam):
    for box, label in drawn_boxes(height, width, lam, 60):
        assert label[1] == np.float32(box.mean())
        assert label.sum() == pytest.approx(1, abs=1e-6)
        assert (label >= 0).all()
        rows, columns = box.any(1), box.any(0)
        assert np.array_equal(box, np.outer(rows, columns))
        for side in (rows, columns):  # without a gap
            assert np.abs(np.diff(np.r_[0, side, 0])).sum() in (0, 2)


def test_a_whole_box_has_the_aspect_ratio_of_the_image_and_one_minus_lambda_of_its_area():
    sizes = [(box.any(1).sum(), box.any(0).sum()) for box, _ in drawn_boxes(20, 40, 0.84, 200)]
    assert max(sizes) == (8, 16)  # 16 % of the area, 40 % of each side


def test_the_centre_of_the_box_is_uniform_and_the_border_cuts_it():
    """A box of 3 x 3 of 6 x 9 pixels: what lies outside is cut off, and nothing is moved."""
    cover = np.zeros((6, 9))
    areas = set()
    for box, _ in drawn_boxes(6, 9, 8 / 9, 5400):
        cover += box
        areas.add(int(box.sum()))
    rows, columns = np.array([2, 2, 2, 2, 2, 1]), np.array([2, 3, 3, 3, 3, 3, 3, 3, 2])
    np.testing.assert_allclose(cover / 5400 * 54, np.outer(rows, columns), rtol=0.2)
    assert areas == {2, 3, 4, 6}


def test_weight_one_leaves_images_and_labels_and_weight_zero_may_replace_the_image():
    images, labels, partners = black_and_white(3, 5)
    same, kept = cutmix(images, labels, 1.0, partners, np.random.default_rng(0))
    assert np.array_equal(same, images)
    assert np.array_equal(kept, labels)
    shares = [box.mean() for box, _ in drawn_boxes(3, 5, 0.0, 100)]
    assert max(shares) == 1
    assert min(shares) < 0.5  # the border cuts a box whose centre is not the image's


def test_cutmix_leaves_its_input_alone():
    images, labels, partners = black_and_white(3, 5)
    cutmix(images, labels, 0.0, partners, np.random.default_rng(0))
    assert np.array_equal(images, black_and_white(3, 5)[0])
    assert np.array_equal(labels, np.eye(2))


def test_each_row_is_filled_from_its_partner():
    images = np.random.default_rng(0).normal(size=(3, 3, 4, 6)).astype(np.float32)
    labels, partners = np.eye(3, 5, dtype=np.float32), np.array([1, 2, 0])
    mixed, soft = cutmix(images, labels, 0.5, partners, np.random.default_rng(1))
    replaced = mixed != images
    assert 0 < replaced.mean() < 1
    assert np.array_equal(mixed, np.where(replaced, images[partners], images))
    share = np.float32(replaced.mean())
    np.testing.assert_allclose(soft, (1 - share) * labels + share * labels[partners], rtol=1e-6)
    assert mixed.dtype == soft.dtype == np.float32


@pytest.mark.parametrize("rows", [1, 7])
def test_cutmix_takes_one_row_and_odd_batches(rows):
    rng = np.random.default_rng(0)
    labels = np.eye(10, dtype=np.float32)[rng.integers(10, size=rows)]
    for _ in range(200):
        lam = draw_lambda(0.01, rng)
        images, soft = cutmix(np.ones((rows, 3, 5, 2), np.float32), labels, lam, rng.permutation(rows), rng)
        assert (images == 1).all()
        assert np.allclose(soft.sum(1), 1, atol=1e-6)
        assert (soft >= 0).all()
