import hashlib
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from src import autoaugment
from src.autoaugment import IMAGENET, OPERATIONS, AutoAugment, RandAugment, TrivialAugment, get_augment
from src.errors import UserError

ALL = [AutoAugment(), RandAugment(), TrivialAugment()]
each = pytest.mark.parametrize("augment", ALL, ids=lambda augment: type(augment).__name__)

SIGNED = {"ShearX", "ShearY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness"}


def picture(height=32, width=40, seed=0):
    """Noise on a slope, between 20 and 219, so that every operation finds something to change."""
    noise = np.random.default_rng(seed).integers(0, 60, (height, width, 3))
    return (20 + noise + np.linspace(0, 140, width)[:, None]).astype(np.uint8)


def operated(name, value, pixels=None):
    return np.asarray(OPERATIONS[name](Image.fromarray(picture() if pixels is None else pixels), value))


def results(augment, seeds):
    image = Image.fromarray(picture())
    return [augment(image, np.random.default_rng(seed)).tobytes() for seed in seeds]


@pytest.fixture
def applied(monkeypatch):
    """(name, value) of every operation that is applied; the image stays as it is."""
    calls = []

    def record(name):
        def operation(image, value):
            calls.append((name, float(value)))
            return image

        return operation

    monkeypatch.setattr(autoaugment, "OPERATIONS", {name: record(name) for name in OPERATIONS})
    return calls


def run(augment, count):
    image, rng = Image.new("RGB", (3, 2)), np.random.default_rng(0)
    for _ in range(count):
        augment(image, rng)


def assert_even(counts, kinds):
    """Each of `kinds` within 4.5 standard deviations of its fair number."""
    total = sum(counts.values())
    assert len(counts) == kinds
    assert max(abs(count - total / kinds) for count in counts.values()) < 4.5 * np.sqrt(total / kinds)


@each
def test_threads_and_order_change_nothing(augment):
    seeds = np.random.default_rng(1).permutation(120)
    alone = results(augment, range(120))
    with ThreadPoolExecutor(3) as pool:
        threads = list(pool.map(lambda seed: results(augment, [seed])[0], seeds))
    assert threads == [alone[seed] for seed in seeds]
    assert len(set(alone)) > 25


def digest():
    found = [result for augment in ALL for result in results(augment, range(40))]
    return hashlib.sha256(b"".join(found)).hexdigest()


def test_another_process_gives_the_same_pixels():
    code = "from test_autoaugment import digest; print(digest())"
    folder = Path(__file__).parent
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{folder.parent}:{folder}", "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == digest()


@each
def test_global_generators_are_neither_used_nor_changed(augment):
    np.random.seed(1)  # noqa: NPY002
    before = results(augment, range(5))
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    assert results(augment, range(5)) == before
    np.random.seed(1)  # noqa: NPY002
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


@each
@pytest.mark.parametrize("shape", [(1, 1), (5, 300), (300, 5), (32, 32)])
def test_size_and_mode_are_kept(augment, shape):
    image = Image.fromarray(picture(*shape))
    for seed in range(60):
        found = augment(image, np.random.default_rng(seed))
        assert found.size == image.size
        assert found.mode == "RGB"
    assert np.array_equal(image, picture(*shape))


@each
def test_most_images_change(augment):
    changed = [result != picture().tobytes() for result in results(augment, range(300))]
    assert np.mean(changed) > 0.7


def test_one_of_the_operations_of_trivialaugment_is_none():
    same = np.mean([result == picture().tobytes() for result in results(TrivialAugment(), range(1000))])
    assert 1 / 14 < same < 0.2  # and weak ones of others


def test_trivialaugment_draws_operation_strength_and_direction_evenly(applied):
    run(TrivialAugment(), 28_000)
    assert_even(Counter(name for name, _ in applied), 14)
    degrees = [value for name, value in applied if name == "Rotate"]
    assert_even(Counter(round(abs(value) / 4.5) for value in degrees), 31)
    assert abs(np.mean(np.sign(degrees))) < 0.08
    largest = {}
    for name, value in applied:
        largest[name] = max(abs(value), largest.get(name, 0))
    assert largest == {
        "Identity": 0, "AutoContrast": 0, "Equalize": 0, "Posterize": 6, "Solarize": 256, "Rotate": 135,
        "ShearX": 0.99, "ShearY": 0.99, "ShiftX": 32, "ShiftY": 32,
        "Brightness": 0.99, "Color": 0.99, "Contrast": 0.99, "Sharpness": 0.99,
    }  # fmt: skip
    assert min(value for name, value in applied if name in ("Posterize", "Solarize")) == 0


def test_randaugment_applies_n_operations_at_one_magnitude(applied):
    run(RandAugment(n=3, m=5), 4000)
    assert len(applied) == 12_000
    assert_even(Counter(name for name, _ in applied), 14)
    values = {}
    for name, value in applied:
        values.setdefault(name, set()).add(round(value, 6))
    assert values.pop("TranslateX") == values.pop("TranslateY") == {0.226586, -0.226586}
    assert values == {
        "Identity": {0}, "AutoContrast": {0}, "Equalize": {0}, "Posterize": {2}, "Solarize": {128},
        "Rotate": {15, -15}, "ShearX": {0.15, -0.15}, "ShearY": {0.15, -0.15}, "Brightness": {0.45, -0.45},
        "Color": {0.45, -0.45}, "Contrast": {0.45, -0.45}, "Sharpness": {0.45, -0.45},
    }  # fmt: skip
    signs = [np.sign(value) for name, value in applied if name in SIGNED]
    assert abs(np.mean(signs)) < 0.06


def test_randaugments_magnitude_0_only_stretches_the_histogram():
    pixels = picture()
    pixels[0, 0], pixels[0, 1] = 255, 250  # a threshold of 255 would invert white
    pixels[:, 2:] = np.clip(pixels[:, 2:], 10, 240)
    rng = np.random.default_rng(0)
    image = Image.fromarray(pixels)
    found = Counter(RandAugment(n=1, m=0)(image, rng).tobytes() for _ in range(1500))
    expected = {operated(name, 0, pixels).tobytes() for name in ("AutoContrast", "Equalize")}
    assert set(found) == expected | {pixels.tobytes()}
    assert abs(found[pixels.tobytes()] / 1500 - 12 / 14) < 0.04


def test_autoaugment_draws_pairs_evenly_and_operations_with_their_probabilities(applied):
    count = 25_000
    run(AutoAugment(), count)
    expected = Counter()
    for pair in IMAGENET:
        for name, probability, _ in pair:
            expected[name] += probability * count / 25
    assert expected["ShearX"] == pytest.approx(600)
    found = Counter(name for name, _ in applied)
    assert set(found) == set(expected)
    for name, number in expected.items():
        assert abs(found[name] - number) < 5 * np.sqrt(number)


def test_autoaugments_magnitudes_are_ninths(applied):
    run(AutoAugment(), 5000)
    values = {}
    for name, value in applied:
        values.setdefault(name, set()).add(round(value, 4))
    assert values == {
        "Posterize": {2.2222, 2.6667, 3.1111, 3.5556},
        "Rotate": {10, -10, 26.6667, -26.6667, 30, -30},
        "Solarize": {85.3333, 113.7778, 142.2222, 199.1111, 227.5556},
        "Color": {0, 0.2, -0.2, 0.4, -0.4, 0.8, -0.8},
        "Contrast": {0.8, -0.8},
        "Sharpness": {0.7, -0.7},
        "ShearX": {0.1667, -0.1667},
        "Equalize": {0},
        "AutoContrast": {0},
        "Invert": {0},
    }


def test_the_policy_is_the_papers():
    assert len(IMAGENET) == 25
    assert IMAGENET[0] == (("Posterize", 0.4, 8), ("Rotate", 0.6, 9))
    assert IMAGENET[17] == (("Sharpness", 0.4, 7), ("Invert", 0.6, 8))
    assert IMAGENET[24] == (("Equalize", 0.8, 8), ("Equalize", 0.6, 3))


@pytest.mark.parametrize(("bits", "dropped"), [(0, 0), (1.4, 1), (2.6, 3), (6, 6)])
def test_posterize_drops_low_bits(bits, dropped):
    assert np.array_equal(operated("Posterize", bits), picture() >> dropped << dropped)


@pytest.mark.parametrize("values", [0, 128, 156, 256])
def test_solarize_inverts_the_brightest_values(values):
    pixels = picture()
    pixels[0, 0] = 255
    expected = np.where(pixels >= 256 - values, 255 - pixels, pixels)
    assert np.array_equal(operated("Solarize", values, pixels), expected)


def test_invert_inverts():
    assert np.array_equal(operated("Invert", 0), 255 - picture())


def grey(pixels):
    return pixels @ (0.299, 0.587, 0.114)


@pytest.mark.parametrize("change", [-0.9, -0.3, 0.0, 0.4, 0.99])
@pytest.mark.parametrize("name", ["Brightness", "Color", "Contrast"])
def test_brightness_color_and_contrast_move_away_from_black_grey_and_the_mean(name, change):
    pixels = picture().astype(float)
    origin = {"Brightness": 0, "Color": grey(pixels)[..., None], "Contrast": grey(pixels).mean()}[name]
    expected = np.clip(origin + (1 + change) * (pixels - origin), 0, 255)
    assert np.abs(operated(name, change) - expected).max() < 2.1  # Pillow rounds in between


@pytest.mark.parametrize("change", [-0.9, 0.5])
def test_sharpness_moves_away_from_the_smoothed_image(change):
    pixels = np.zeros((5, 5, 3), np.uint8)
    pixels[2, 2] = 130
    smooth = np.zeros((5, 5))
    smooth[1:4, 1:4] = 10
    smooth[2, 2] = 50  # weights 1 and, in the centre, 5, of 13
    expected = np.clip(smooth + (1 + change) * (pixels[..., 0] - smooth), 0, 255)
    assert np.abs(operated("Sharpness", change, pixels)[..., 0] - expected).max() <= 1


def test_autocontrast_stretches_each_channel_to_the_full_range():
    pixels = picture()
    low, high = pixels.min((0, 1)).astype(float), pixels.max((0, 1))
    assert np.abs(operated("AutoContrast", 0) - (pixels - low) * 255 / (high - low)).max() <= 1


def test_equalize_makes_values_equally_frequent():
    pixels = (np.arange(64 * 64).reshape(64, 64, 1) // 1024 * np.array([1, 2, 3]) + 100).astype(np.uint8)
    found = operated("Equalize", 0, pixels)
    for channel in range(3):
        np.testing.assert_allclose(np.unique(found[..., channel]), [0, 85, 170, 255], atol=1)


@pytest.mark.parametrize(("share", "columns"), [(0.25, 10), (-0.26, -10)])
def test_translations_are_shares_of_the_side_and_leave_grey(share, columns):
    expected = np.full((32, 40, 3), 128, np.uint8)
    if columns > 0:
        expected[:, :-columns] = picture()[:, columns:]
    else:
        expected[:, -columns:] = picture()[:, :columns]
    assert np.array_equal(operated("TranslateX", share), expected)
    assert np.array_equal(operated("ShiftX", columns), expected)
    turned = picture().transpose(1, 0, 2)
    assert np.array_equal(operated("TranslateY", share, turned), expected.transpose(1, 0, 2))
    assert np.array_equal(operated("ShiftY", columns, turned), expected.transpose(1, 0, 2))


@pytest.mark.parametrize("slope", [-0.99, -0.3, 0.31])
def test_shears_keep_the_top_left_corner_and_leave_grey(slope):
    rows, columns = np.mgrid[:32, :40]
    source = np.floor(columns + 0.5 + slope * (rows + 0.5)).astype(int)
    inside = (source >= 0) & (source < 40)
    expected = np.where(inside[..., None], picture()[rows, source.clip(0, 39)], 128)
    assert np.mean(operated("ShearX", slope) != expected) < 0.002  # Pillow counts in 1/65536
    turned = operated("ShearY", slope, picture().transpose(1, 0, 2))
    assert np.mean(turned.transpose(1, 0, 2) != expected) < 0.002


def test_rotations_are_anticlockwise_about_the_centre_and_leave_grey():
    square = picture(33, 33)
    assert np.array_equal(operated("Rotate", 90, square), np.rot90(square))
    found = operated("Rotate", 45, square)
    assert np.array_equal(found[16, 16], square[16, 16])
    assert (found[[0, 0, -1, -1], [0, -1, 0, -1]] == 128).all()


def test_an_augmentation_is_had_by_its_name():
    assert get_augment("autoaugment") == AutoAugment()
    assert get_augment("randaugment", (3, 7.5)) == RandAugment(n=3, m=7.5)
    assert get_augment("trivialaugment") == TrivialAugment()


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="autoaugment, randaugment, trivialaugment and got 'augmix'"):
        get_augment("augmix")


@pytest.mark.parametrize("n", [0, -1])
def test_no_operation_is_refused(n):
    with pytest.raises(UserError, match=f"n = 1 operation or more, not {n}"):
        RandAugment(n=n)


@pytest.mark.parametrize("m", [-1, 10.5, float("nan")])
def test_a_magnitude_off_the_scale_is_refused(m):
    with pytest.raises(UserError, match="from 0 to 10"):
        RandAugment(m=m)
