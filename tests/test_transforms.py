import numpy as np
import pytest
from PIL import Image

from src.errors import UserError
from src.pixels import PLAIN
from src.transforms import (
    CentreCrop,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    TrainTransform,
    check_statistics,
)


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


def assert_uniform(values, low, high):
    """Kolmogorov-Smirnov at 0.1 %."""
    values = (np.sort(values) - low) / (high - low)
    assert np.abs(values - (np.arange(len(values)) + 0.5) / len(values)).max() < 1.95 / np.sqrt(len(values))


class Recorder:
    """Looks like an image of one colour and keeps the boxes that are asked for."""

    def __init__(self, height, width):
        self.height, self.width, self.boxes = height, width, []

    def resize(self, size, resample, box):
        self.boxes.append(box)
        return Image.new("RGB", size)


def boxes_of(transform, height, width, count):
    image, rng = Recorder(height, width), np.random.default_rng(0)
    for _ in range(count):
        transform(image, rng)
    return np.array(image.boxes)


@pytest.mark.parametrize("size", [(13, 20), (64, 96), (50, 20)])
def test_evaluation_resizes_straight_to_the_crop_with_an_antialiased_filter(size):
    image = photo()
    expected = antialiased(np.asarray(image, float), size[0])
    expected = antialiased(expected.transpose(1, 0, 2), size[1]).transpose(1, 0, 2)
    found = Resize(crop=size)(image)
    assert found.shape == (*size, 3)
    assert found.dtype == np.uint8
    assert np.abs(found - expected).max() <= 1.01  # Pillow rounds after each axis


def test_a_fine_pattern_becomes_grey_and_not_stripes():
    stripes = np.zeros((4, 512, 3), np.uint8)
    stripes[:, ::4] = 255
    found = Resize(crop=(4, 128))(Image.fromarray(stripes)).astype(int)
    assert abs(found[:, 2:-2] - 255 / 4).max() <= 1  # without antialiasing it would be 0


@pytest.mark.parametrize("interpolation", ["NEAREST", "BILINEAR", "BICUBIC", "LANCZOS"])
def test_the_interpolation_is_pillows_of_that_name(interpolation):
    image = photo()
    expected = image.resize((31, 17), Image.Resampling[interpolation])
    assert np.array_equal(Resize((17, 31), interpolation)(image), expected)
    assert np.array_equal(
        CentreCrop((17, 31), 1.0, interpolation)(photo(34, 62)),
        photo(34, 62).resize((31, 17), Image.Resampling[interpolation]),
    )
    rng = np.random.default_rng(0)
    assert np.array_equal(RandomCrop((17, 31), (17, 31), interpolation)(image, rng), expected)
    square = photo(40, 40)
    assert np.array_equal(
        RandomResizedCrop((17, 31), 1.0, interpolation)(square, Whole()),
        square.resize((31, 17), Image.Resampling[interpolation]),
    )


class Whole:
    """A generator whose random resized crop is the whole of a square."""

    def uniform(self, low, high):
        return (low + high) / 2

    def integers(self, high):
        return 0


def test_crops_are_uniform_over_all_places_and_never_elsewhere():
    rows, columns = np.mgrid[:6, :9]
    image = Image.fromarray(np.stack([rows, columns, rows * 0], -1).astype(np.uint8))
    crop = RandomCrop(resize=(6, 9), crop=(5, 6))
    rng = np.random.default_rng(0)
    counts = np.zeros((2, 4), int)
    for _ in range(4000):
        found = np.asarray(crop(image, rng))
        top, left = found[0, 0, :2]
        assert np.array_equal(found, np.asarray(image)[top : top + 5, left : left + 6])
        counts[top, left] += 1
    assert counts.min() > 430  # 500 each, three standard deviations are 63
    assert counts.max() < 570


def test_half_of_the_images_are_flipped_left_to_right():
    image = photo(4, 5)
    plain = np.asarray(image)
    flip = TrainTransform(RandomCrop(resize=(4, 5), crop=(4, 5)))
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
    flip = TrainTransform(RandomCrop(resize=(4, 5), crop=(4, 5)), hflip=hflip)
    rng = np.random.default_rng(0)
    assert all(np.array_equal(flip(image, rng), np.asarray(image)[:, ::step]) for _ in range(20))


def test_the_draws_of_crop_and_flip_are_those_of_earlier_runs():
    """Top, left, flip; a change here would make old runs impossible to repeat."""
    train = TrainTransform(RandomCrop(resize=(20, 30), crop=(11, 13)), hflip=0.4)
    pixels = np.asarray(photo().resize((30, 20), Image.Resampling.BILINEAR))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        top, left, flip = rng.integers(10), rng.integers(18), rng.random() < 0.4
        expected = pixels[top : top + 11, left : left + 13]
        found = train(photo(), np.random.default_rng(seed))
        assert np.array_equal(found, expected[:, ::-1] if flip else expected)


def test_augmentation_follows_the_flip_and_erasing_comes_last():
    calls = []

    def augment(image, rng):
        calls.append(("augment", image, rng))
        return Image.fromarray(np.asarray(image) + 1)

    def erasing(pixels, rng):
        calls.append(("erasing", pixels, rng))
        return pixels + 2

    plain, rng = np.asarray(photo(4, 5)), np.random.default_rng(0)
    train = TrainTransform(RandomCrop((4, 5), (4, 5)), hflip=1.0, augment=augment, erasing=erasing)
    found = train(photo(4, 5), rng)
    assert [name for name, _, _ in calls] == ["augment", "erasing"]
    assert np.array_equal(calls[0][1], plain[:, ::-1])
    assert np.array_equal(calls[1][1], plain[:, ::-1] + 1)
    assert np.array_equal(found, plain[:, ::-1] + 3)
    assert all(used is rng for _, _, used in calls)


@pytest.mark.parametrize(
    "geometry", [RandomCrop(resize=(20, 30), crop=(11, 13)), RandomResizedCrop(crop=(11, 13), crop_min=0.08)]
)
def test_the_same_generator_gives_the_same_pixels_and_another_one_others(geometry):
    train = TrainTransform(geometry, erasing=RandomErasing(0.5, (127.5,) * 3, (60,) * 3))
    first, second, other = (train(photo(), np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert train.crop == (11, 13)
    assert first.shape == (11, 13, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_random_parts_have_a_uniform_share_and_a_uniform_logarithm_of_the_ratio():
    left, top, right, bottom = boxes_of(RandomResizedCrop((2, 2), 0.08), 1500, 1500, 6000).T
    width, height = right - left, bottom - top
    shares = width * height / 1500**2
    assert 0.079 < shares.min() < 0.09
    assert 0.98 < shares.max() <= 1.001
    always = shares < 0.74  # larger ones do not fit with every ratio
    left, top, width, height = left[always], top[always], width[always], height[always]
    assert_uniform(shares[always], 0.08, 0.74)
    assert_uniform(np.log(width / height), np.log(3 / 4), np.log(4 / 3))
    assert_uniform(left / (1500 - width), 0, 1)
    assert_uniform(top / (1500 - height), 0, 1)


def test_a_random_part_may_touch_every_edge():
    left, top, right, bottom = boxes_of(RandomResizedCrop((2, 2), 0.3), 9, 12, 2000).T
    assert (left.min(), top.min(), right.max(), bottom.max()) == (0, 0, 12, 9)
    assert set(left) >= {0, 1, 2, 3, 4}


def test_the_part_of_the_box_is_resized_to_the_crop():
    """The draws, in this order: share, ratio, again until they fit, top, left."""
    rng = np.random.default_rng(5)
    for _ in range(10):
        share = rng.uniform(0.3, 1)
        ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        width, height = round(np.sqrt(3500 * share * ratio)), round(np.sqrt(3500 * share / ratio))
        if width <= 70 and height <= 50:
            break
    top = int(rng.integers(50 - height + 1))
    left = int(rng.integers(70 - width + 1))
    expected = photo().resize((9, 7), Image.Resampling.BILINEAR, (left, top, left + width, top + height))
    found = RandomResizedCrop((7, 9), 0.3)(photo(), np.random.default_rng(5))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [
        (10, 100, (43, 0, 56, 10)),  # 4:3 in the middle; (100 - 13) / 2 is rounded down
        (100, 10, (0, 43, 10, 56)),
        (1, 3000, (1499, 0, 1500, 1)),
        (3000, 1, (0, 1499, 1, 1500)),
        (1, 1, (0, 0, 1, 1)),
    ],
)
def test_where_no_random_part_fits_it_is_the_centre(height, width, box):
    assert {tuple(found) for found in boxes_of(RandomResizedCrop((8, 9), 1.0), height, width, 50)} == {box}


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1)])
def test_extreme_images_give_the_size_and_the_colour(size):
    image = Image.new("RGB", size, (10, 20, 30))
    rng = np.random.default_rng(0)
    for transform in (
        Resize(crop=(8, 9)),
        CentreCrop(crop=(8, 9), ratio=0.875),
        CentreCrop(crop=(224, 224), ratio=0.875),
        RandomCrop(resize=(10, 10), crop=(8, 9)),
        RandomResizedCrop(crop=(8, 9), crop_min=0.08),
    ):
        found = np.asarray(transform(image, rng))
        assert found.shape == (*transform.crop, 3)
        assert (found == (10, 20, 30)).all()


@pytest.mark.parametrize("shape", [(50, 70), (70, 50), (41, 41), (33, 90), (12, 17), (1, 5)])
@pytest.mark.parametrize(("size", "ratio", "shorter"), [(14, 0.875, 16), (15, 0.9, 16), (13, 1.0, 13)])
def test_the_centre_crop_is_resize_by_the_shorter_side_and_crop(shape, size, ratio, shorter):
    height, width = shape
    scaled = (shorter, int(shorter * width / height))
    if width < height:
        scaled = (int(shorter * height / width), shorter)
    resized = np.asarray(photo(*shape).resize(scaled[::-1], Image.Resampling.BILINEAR))
    top, left = round((scaled[0] - size) / 2), round((scaled[1] - size) / 2)
    found = CentreCrop((size, size), ratio)(photo(*shape))
    assert np.array_equal(found, resized[top : top + size, left : left + size])


@pytest.mark.parametrize(("width", "left"), [(3, 0), (4, 1), (5, 2), (6, 2), (7, 2)])
def test_half_a_pixel_of_the_centre_is_rounded_to_the_even_place(width, left):
    image = photo(2, width)
    assert np.array_equal(CentreCrop((2, 2), 1.0)(image), np.asarray(image)[:, left : left + 2])


@pytest.mark.parametrize(
    ("shape", "scaled"),
    [
        ((10, 10), (16, 16)),  # the width decides
        ((10, 40), (8, 32)),  # the height decides
        ((10, 20), (8, 16)),
        ((7, 13), (8, 16)),  # 8 / 7 and 16 / 13: the width decides, int(16 * 7 / 13) = 8
    ],
)
def test_a_crop_that_is_no_square_has_the_ratio_in_both_axes(shape, scaled):
    resized = np.asarray(photo(*shape).resize(scaled[::-1], Image.Resampling.BILINEAR))
    top, left = (scaled[0] - 4) // 2, (scaled[1] - 8) // 2
    found = CentreCrop((4, 8), 0.5)(photo(*shape))
    assert np.array_equal(found, resized[top : top + 4, left : left + 8])


def test_the_centre_of_a_very_long_image_costs_no_gigabytes():
    pixels = np.zeros((1, 60001, 3), np.uint8)
    pixels[:, 29990:30011] = 200
    assert (CentreCrop((224, 224), 0.875)(Image.fromarray(pixels)) == 200).all()
    assert (CentreCrop((224, 224), 0.875)(Image.fromarray(pixels.transpose(1, 0, 2))) == 200).all()


def erase(height, width, seed, probability=1.0, mean=(200, 100, 50), std=(1e-3,) * 3):
    pixels = np.zeros((height, width, 3), np.uint8)
    return RandomErasing(probability, mean, std)(pixels, np.random.default_rng(seed))


def test_the_erased_part_is_a_rectangle_of_the_papers_sizes_anywhere():
    shares, ratios, places = [], [], []
    for seed in range(2500):
        erased = (erase(120, 150, seed) == (200, 100, 50)).all(2)
        rows, columns = np.flatnonzero(erased.any(1)), np.flatnonzero(erased.any(0))
        assert erased.sum() == len(rows) * len(columns) > 0
        assert erased[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
        shares.append(erased.mean())
        ratios.append(len(columns) / len(rows))
        places.append((rows[0] / (120 - len(rows)), columns[0] / (150 - len(columns))))
    shares, ratios, places = np.array(shares), np.array(ratios), np.array(places)
    assert 0.018 < shares.min() < 0.022
    assert 0.3 < shares.max() < 0.34
    always = shares < 0.23  # larger ones do not fit with every ratio
    assert_uniform(shares[always], 0.02, 0.23)
    assert_uniform(np.log(ratios[always]), np.log(0.3), -np.log(0.3))
    assert_uniform(places[always, 0], 0, 1)
    assert_uniform(places[always, 1], 0, 1)


def test_erasing_leaves_noise_of_the_mean_and_deviation_of_each_channel():
    found = erase(400, 300, 1, mean=(90, 120, 150), std=(10, 20, 30))
    noise = found[(found > 0).any(2)].astype(float)
    assert len(noise) > 2000
    np.testing.assert_allclose(noise.mean(0), (90, 120, 150), atol=2)
    np.testing.assert_allclose(noise.std(0), (10, 20, 30), rtol=0.06)
    assert abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.06


def test_noise_is_rounded_and_clipped_and_never_wraps():
    assert set(erase(40, 30, 1, mean=(99.6, 99.4, 0.4)).reshape(-1, 3).max(0)) == {100, 99, 0}
    found = erase(40, 30, 1, mean=(255, 255, 255), std=(20, 20, 20))
    noise = found[(found > 0).any(2)]
    assert noise.min() > 150
    assert 0.4 < (noise == 255).mean() < 0.65


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_erasing_happens_with_its_probability(probability):
    changed = np.mean([erase(20, 30, seed, probability).any() for seed in range(1000)])
    assert abs(changed - probability) < 0.045 * (0 < probability < 1) + 1e-9


def test_erasing_does_not_write_into_what_it_was_given():
    whole = np.zeros((20, 30, 3), np.uint8)
    whole.flags.writeable = False
    found = RandomErasing(1.0, (200,) * 3, (1,) * 3)(whole[::-1, 2:], np.random.default_rng(0))
    assert found.shape == (20, 28, 3)
    assert found.any()
    assert not whole.any()


@pytest.mark.parametrize("shape", [(1, 1), (1, 3000), (2, 2)])
def test_an_image_too_small_for_a_rectangle_stays(shape):
    for seed in range(20):
        found = erase(*shape, seed)
        assert found.shape == (*shape, 3)
        assert found.dtype == np.uint8


@pytest.mark.parametrize("crop", [(11, 5), (5, 21)])
def test_a_crop_larger_than_the_image_is_refused(crop):
    with pytest.raises(UserError, match="is larger than"):
        RandomCrop(resize=(10, 20), crop=crop)


def test_an_unknown_interpolation_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="NEAREST, BILINEAR, BICUBIC, LANCZOS, not 'CUBE'"):
        Resize(crop=(2, 2), interpolation="CUBE")
    for build in (
        lambda name: RandomCrop((2, 2), (2, 2), name),
        lambda name: RandomResizedCrop((2, 2), 0.1, name),
        lambda name: CentreCrop((2, 2), 0.9, name),
    ):
        with pytest.raises(UserError, match="not 'bilinear'"):
            build("bilinear")


@pytest.mark.parametrize("value", [-0.1, 0, 1.01])
def test_shares_and_ratios_outside_of_0_to_1_are_refused(value):
    with pytest.raises(UserError, match="crop_min"):
        RandomResizedCrop((2, 2), value)
    with pytest.raises(UserError, match="eval_crop_ratio"):
        CentreCrop((2, 2), value)


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_a_probability_outside_of_0_to_1_is_refused(probability):
    with pytest.raises(UserError, match="random_erasing"):
        RandomErasing(probability, (0,) * 3, (1,) * 3)


def test_google_normalisation_is_exact_at_both_ends():
    found = PLAIN.normalise(np.array([0, 255, 51], np.uint8).reshape(1, 1, 1, 3), (127.5,) * 3, (127.5,) * 3)
    assert found.ravel()[:2].tolist() == [-1.0, 1.0]
    assert found.ravel()[2] == pytest.approx(-0.6)


def test_normalising_puts_channels_first_and_treats_each_by_its_own_values():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 5, 3), np.uint8)
    mean, std = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
    found = PLAIN.normalise(pixels, mean, std)
    assert found.shape == (2, 3, 3, 5)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert np.allclose(found, ((pixels - mean) / std).transpose(0, 3, 1, 2), atol=1e-6)


def test_normalising_rounds_once_in_each_of_its_two_operations():
    """What earlier runs computed, to the last bit; a product with 1 / std would differ."""
    pixels = np.arange(256, dtype=np.uint8).repeat(3).reshape(1, 256, 3)
    mean, std = np.float32([123.675, 116.28, 103.53]), np.float32([58.395, 57.12, 57.375])
    out = np.empty((3, 1, 256), np.float32)
    assert PLAIN.normalise(pixels, mean, std, out=out) is out
    assert np.array_equal(out[:, 0], ((np.float32(range(256))[:, None] - mean) / std).T)


@pytest.mark.parametrize(("mean", "std"), [((0, 0), (1, 1, 1)), ((0, 0, 0), (1,)), ((0, 0, 0), (1, 0, 1))])
def test_wrong_statistics_are_refused(mean, std):
    with pytest.raises(UserError, match="three values"):
        check_statistics(mean, std)
