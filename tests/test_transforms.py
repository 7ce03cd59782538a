import numpy as np
import pytest
from PIL import Image

from src.errors import UserError
from src.transforms import BitEval, BitTrain, check_statistics, normalise


def photo(height=50, width=70, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def antialiased(values, size):
    """Resize along the first axis with a triangle filter as wide as the shrinking factor."""
    scale = len(values) / size
    centres = (np.arange(size)[:, None] + 0.5) * scale
    distances = np.abs(np.arange(len(values)) + 0.5 - centres) / max(scale, 1)
    weights = np.maximum(1 - distances, 0)
    weights /= weights.sum(1, keepdims=True)
    return np.tensordot(weights, values, 1)


@pytest.mark.parametrize("size", [(13, 20), (64, 96), (50, 20)])
def test_evaluation_resizes_straight_to_the_crop_with_an_antialiased_filter(size):
    image = photo()
    expected = antialiased(np.asarray(image, float), size[0])
    expected = antialiased(expected.transpose(1, 0, 2), size[1]).transpose(1, 0, 2)
    found = BitEval(crop=size)(image)
    assert found.shape == (*size, 3)
    assert found.dtype == np.uint8
    assert np.abs(found - expected).max() <= 1.01  # Pillow rounds after each axis


def test_a_fine_pattern_becomes_grey_and_not_stripes():
    stripes = np.zeros((4, 512, 3), np.uint8)
    stripes[:, ::4] = 255
    found = BitEval(crop=(4, 128))(Image.fromarray(stripes)).astype(int)
    assert abs(found[:, 2:-2] - 255 / 4).max() <= 1  # without antialiasing it would be 0


@pytest.mark.parametrize("interpolation", ["NEAREST", "BILINEAR", "BICUBIC", "LANCZOS"])
def test_the_interpolation_is_pillows_of_that_name(interpolation):
    image = photo()
    expected = image.resize((31, 17), Image.Resampling[interpolation])
    assert np.array_equal(BitEval(crop=(17, 31), interpolation=interpolation)(image), expected)
    train = BitTrain(resize=(17, 31), crop=(17, 31), hflip=0.0, interpolation=interpolation)
    assert np.array_equal(train(image, np.random.default_rng(0)), expected)


def test_crops_are_uniform_over_all_places_and_never_elsewhere():
    rows, columns = np.mgrid[:6, :9]
    image = Image.fromarray(np.stack([rows, columns, rows * 0], -1).astype(np.uint8))
    crop = BitTrain(resize=(6, 9), crop=(5, 6), hflip=0.0)
    rng = np.random.default_rng(0)
    counts = np.zeros((2, 4), int)
    for _ in range(4000):
        found = crop(image, rng)
        top, left = found[0, 0, :2]
        assert np.array_equal(found, np.asarray(image)[top : top + 5, left : left + 6])
        counts[top, left] += 1
    assert counts.min() > 430  # 500 each, three standard deviations are 63
    assert counts.max() < 570


def test_half_of_the_images_are_flipped_left_to_right():
    image = photo(4, 5)
    plain = np.asarray(image)
    flip = BitTrain(resize=(4, 5), crop=(4, 5))
    rng = np.random.default_rng(0)
    flipped = 0
    for _ in range(2000):
        found = flip(image, rng)
        is_flipped = np.array_equal(found, plain[:, ::-1])
        assert is_flipped or np.array_equal(found, plain)
        flipped += is_flipped
    assert abs(flipped - 1000) < 68


@pytest.mark.parametrize(("hflip", "step"), [(0.0, 1), (1.0, -1)])
def test_the_flip_can_be_switched_off_or_forced(hflip, step):
    image = photo(4, 5)
    flip = BitTrain(resize=(4, 5), crop=(4, 5), hflip=hflip)
    rng = np.random.default_rng(0)
    assert all(np.array_equal(flip(image, rng), np.asarray(image)[:, ::step]) for _ in range(20))


def test_the_same_generator_gives_the_same_pixels():
    train = BitTrain(resize=(20, 30), crop=(11, 13))
    first, second = (train(photo(), np.random.default_rng(7)) for _ in range(2))
    assert first.shape == (11, 13, 3)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1)])
def test_extreme_images_are_stretched(size):
    image = Image.new("RGB", size, (10, 20, 30))
    assert (BitEval(crop=(8, 9))(image) == (10, 20, 30)).all()
    assert BitTrain(resize=(10, 10), crop=(8, 9))(image, np.random.default_rng(0)).shape == (8, 9, 3)


@pytest.mark.parametrize("crop", [(11, 5), (5, 21)])
def test_a_crop_larger_than_the_image_is_refused(crop):
    with pytest.raises(UserError, match="is larger than"):
        BitTrain(resize=(10, 20), crop=crop)


def test_an_unknown_interpolation_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="NEAREST, BILINEAR, BICUBIC, LANCZOS, not 'CUBE'"):
        BitEval(crop=(2, 2), interpolation="CUBE")
    with pytest.raises(UserError, match="not 'bilinear'"):
        BitTrain(resize=(2, 2), crop=(2, 2), interpolation="bilinear")


def test_google_normalisation_is_exact_at_both_ends():
    found = normalise(np.array([0, 255, 51], np.uint8).reshape(1, 1, 1, 3), (127.5,) * 3, (127.5,) * 3)
    assert found.ravel()[:2].tolist() == [-1.0, 1.0]
    assert found.ravel()[2] == pytest.approx(-0.6)


def test_normalising_puts_channels_first_and_treats_each_by_its_own_values():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 5, 3), np.uint8)
    mean, std = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
    found = normalise(pixels, mean, std)
    assert found.shape == (2, 3, 3, 5)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert np.allclose(found, ((pixels - mean) / std).transpose(0, 3, 1, 2), atol=1e-6)


@pytest.mark.parametrize(("mean", "std"), [((0, 0), (1, 1, 1)), ((0, 0, 0), (1,)), ((0, 0, 0), (1, 0, 1))])
def test_wrong_statistics_are_refused(mean, std):
    with pytest.raises(UserError, match="three values"):
        check_statistics(mean, std)
