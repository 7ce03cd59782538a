"""The compiled operators of the input pipeline against Pillow and NumPy, to the bit."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image
from support import colour_folder

from src import dataset
from src.cpu_kernels import build
from src.cpu_kernels.install import install_cpu_kernels
from src.cpu_kernels.pixels import FILTERS, CompiledPixels, get_pixels
from src.model_utils.config import load_config
from src.network import get_network
from src.pixels import INTERPOLATIONS, PLAIN
from src.recipe import make_recipe

horizontal_first = pytest.mark.skipif(
    int(PIL.__version__.split(".")[0]) > 12, reason="this Pillow resizes in another order than the pinned one"
)


@pytest.fixture(scope="module")
def compiled():
    return CompiledPixels(build.load(build.library()))


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


@pytest.fixture
def no_plain(monkeypatch):
    """Pillow's resize is not to be called."""
    monkeypatch.setattr(Image.Image, "resize", lambda *_: pytest.fail("Pillow resized"))


def same(compiled, *case):
    return np.array_equal(compiled.resize(*case), PLAIN.resize(*case))


@horizontal_first
@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("seed", range(60))
def test_random_parts_are_resized_as_by_pillow(compiled, interpolation, seed):
    rng = np.random.default_rng(seed)
    width, height = (int(side) for side in rng.integers(2, 300, 2))
    image, size = noise(width, height, seed), tuple(int(side) for side in rng.integers(1, 250, 2))
    left, top = rng.uniform(0, width - 1), rng.uniform(0, height - 1)
    fractions = (left, top, rng.uniform(left + 0.5, width), rng.uniform(top + 0.5, height))
    for box in (None, fractions, (int(left), int(top), int(fractions[2]) + 1, int(fractions[3]) + 1)):
        assert same(compiled, image, size, interpolation, box)


@horizontal_first
@pytest.mark.parametrize(
    ("width", "height", "size"),
    [
        (2, 1, (1, 1)), (2, 2, (300, 7)), (3, 5, (2, 3)), (9, 900, (4, 3)), (8, 900, (4, 3)),
        (900, 5, (3, 4)), (17, 4, (4, 17)), (2, 9, (9, 2)), (64, 64, (64, 64)), (2000, 1500, (224, 224)),
        (1201, 33, (11, 1)), (40_000, 3, (2, 2)),
    ],
)  # fmt: skip
def test_extreme_shapes_are_resized_as_by_pillow(compiled, width, height, size):
    image = noise(width, height)
    for interpolation in FILTERS:
        assert same(compiled, image, size, interpolation)


@horizontal_first
def test_white_and_black_stay_what_they_are_beside_each_other(compiled):
    """Bicubic weights are negative, too: sums below 0 and above 255 are cut off."""
    stripes = Image.fromarray(np.uint8([[[0, 255, 0], [255, 0, 255]] * 20] * 20))
    for size in ((20, 57), (57, 40), (90, 90), (7, 9)):
        assert same(compiled, stripes, size, "BICUBIC")


@horizontal_first
def test_a_photo_sized_image_is_not_left_to_pillow(compiled, no_plain):
    for interpolation in FILTERS:
        assert compiled.resize(noise(500, 375), (224, 224), interpolation, (3, 4, 400, 300.5)).shape[2] == 3


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_other_filters_and_shapes_are_left_to_pillow(compiled, interpolation):
    if interpolation not in FILTERS:
        assert same(compiled, noise(30, 20), (7, 9), interpolation)
    assert same(compiled, noise(1, 20), (7, 9), interpolation)
    grey = noise(30, 20).convert("L")
    assert np.array_equal(
        compiled.resize(grey, (7, 9), interpolation), grey.resize((9, 7), INTERPOLATIONS[interpolation])
    )


def test_an_image_in_several_blocks_of_memory_is_left_to_pillow(compiled):
    image = Image.new("RGB", (3000, 3000), (1, 2, 3))
    assert (compiled.resize(image, (5, 6), "BILINEAR") == (1, 2, 3)).all()
    assert (compiled.array(image) == (1, 2, 3)).all()


@pytest.mark.parametrize("box", [(-1, 0, 5, 5), (0, 0, 31, 5), (0, 0, 5, 21), (5, 5, 4, 9)])
def test_a_part_outside_of_the_image_is_refused_by_pillow(compiled, box):
    with pytest.raises(ValueError, match="box"):
        compiled.resize(noise(30, 20), (4, 4), "BILINEAR", box)


def test_an_array_is_the_image_without_a_copy_and_outlives_it(compiled):
    image = noise(31, 17)
    expected = np.array(image)
    array = compiled.array(image)
    assert not array.flags.writeable
    del image
    gc.collect()
    noise(31, 17, seed=1)  # may take the memory, were it free
    assert np.array_equal(array, expected)


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("mirrored", [False, True])
def test_normalising_gives_the_bits_of_numpy(compiled, channels, mirrored):
    mean, std = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    for height, width in ((16, 16), (1, 1), (5, 37), (224, 224)):
        memory = np.random.default_rng(0).integers(0, 256, (height + 2, width + 3, channels), np.uint8)
        pixels = memory[1:-1, 2:-1, :3]
        pixels = pixels[:, ::-1] if mirrored else pixels
        out = np.full((3, height, width), np.nan, np.float32)
        assert compiled.normalise(pixels, mean, std, out=out) is out
        assert np.array_equal(out, PLAIN.normalise(pixels, mean, std))
        assert np.array_equal(compiled.normalise(pixels, mean, std), out)


@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 9, 8), (4, 8, 8), (3, 64)])
def test_a_result_of_another_shape_is_not_written(compiled, shape):
    memory = np.full(4000, 7, np.float32)
    out = memory[: int(np.prod(shape))].reshape(shape)
    with pytest.raises(ValueError, match="broadcast"):
        compiled.normalise(np.zeros((8, 8, 3), np.uint8), (1, 2, 3), (4, 5, 6), out=out)
    assert (memory == 7).all()


def test_statistics_and_channels_of_another_number_are_not_read_beyond_their_end(compiled):
    pixels = np.zeros((8, 8, 3), np.uint8)
    for mean, std in (((1, 2), (4, 5, 6)), ((1, 2, 3), (4, 5))):
        with pytest.raises(ValueError, match="reshape"):
            compiled.normalise(pixels, mean, std)
    for other in (pixels[:, :, :1], np.zeros((0, 8, 3), np.uint8)):
        expected = PLAIN.normalise(other, (1, 2, 3), (4, 5, 6))
        assert np.array_equal(compiled.normalise(other, (1, 2, 3), (4, 5, 6)), expected)


def test_other_layouts_are_left_to_numpy(compiled):
    rng, statistics = np.random.default_rng(0), ((1, 2, 3), (4, 5, 6))
    batch = rng.integers(0, 256, (2, 4, 5, 3), np.uint8)
    for pixels in (batch, batch[0].transpose(1, 0, 2), batch[0, :, ::2], batch[0].astype(np.float64)):
        assert np.array_equal(compiled.normalise(pixels, *statistics), PLAIN.normalise(pixels, *statistics))


@horizontal_first
def test_threads_do_not_disturb_each_other(compiled):
    images = [noise(90 + i, 80 - i, seed=i) for i in range(8)]
    expected = [PLAIN.resize(image, (33, 44), "BICUBIC") for image in images]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(25):
            found = pool.map(lambda image: compiled.resize(image, (33, 44), "BICUBIC"), images)
            assert all(map(np.array_equal, found, expected))


def test_a_pillow_that_resizes_differently_is_noticed_and_used(compiled, monkeypatch, caplog):
    caplog.set_level("INFO")
    resize = Image.Image.resize
    monkeypatch.setattr(
        Image.Image, "resize", lambda image, *a: Image.fromarray(np.asarray(resize(image, *a)) ^ 1)
    )
    assert get_pixels(wanted=True) is PLAIN
    assert f"Pillow {PIL.__version__} and NumPy prepare the images: its pixels differ" in caplog.text


def test_without_a_compiler_one_line_says_so_for_all_operators(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(build, "_told", set())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    for _ in range(2):
        assert get_pixels(wanted=True) is PLAIN
    net = get_network("bit_tiny", num_classes=2)
    assert not install_cpu_kernels(net, wanted=True, device_target="CPU")
    (line,) = caplog.messages
    assert (
        "Pillow's and NumPy's slower operators are used: there is no C++ compiler (g++, c++, clang++" in line
    )
    assert get_pixels(wanted=False) is PLAIN


def test_a_damaged_library_is_told_and_not_used(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(build, "_told", set())
    monkeypatch.setattr(build, "library", lambda: tmp_path / "damaged.so")
    (tmp_path / "damaged.so").write_bytes(b"no library")
    assert get_pixels(wanted=True) is PLAIN
    assert f"cannot load {tmp_path / 'damaged.so'}" in caplog.text
    assert "; remove it" in caplog.text


@horizontal_first
@pytest.mark.parametrize("augment", [{}, {"autoaugment": True}, {"random_erasing": 0.9, "crop_min": 0.1}])
def test_training_and_evaluation_get_the_same_images_with_and_without(tmp_path, augment):
    root = tmp_path
    for part in ("train", "val"):
        colour_folder(root / part)
    batches = []
    calls = []

    class Counted(CompiledPixels):
        def resize(self, *args):
            calls.append(args)
            return super().resize(*args)

    for pixels in (Counted(build.load(build.library())), PLAIN):
        keys = {"dataset_path": root, "batch_size": 6, **augment}
        cfg = load_config([f"--{key}={value}" for key, value in keys.items()])
        samples = dataset.open_train(cfg)
        recipe = make_recipe(cfg, "bit_tiny", (20, 24), num_images=12, source={})
        stream = dataset.train_stream(cfg, samples, recipe, indices=None, class_num=3, pixels=pixels)
        how = {"eval_image_size": (20, 24), "eval_crop_ratio": 0.9, "interpolation": "BICUBIC"}
        how |= {"image_mean": recipe.image_mean, "image_std": recipe.image_std}
        evaluated = dataset.open_eval(cfg, None)
        batches.append([*stream.iterate(0, 3), *dataset.eval_batches(cfg, evaluated, how, pixels=pixels)])
    assert len(calls) == 3 * 6 + 12
    for (images, labels), (others, same) in zip(*batches):
        assert np.array_equal(images, others)
        assert np.array_equal(labels, same)


def test_the_pipeline_needs_no_mindspore(tmp_path):
    script = "import sys; from src import dataset; sys.exit('mindspore' in sys.modules)"
    root = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    assert subprocess.run([sys.executable, "-c", script], env=env, cwd=tmp_path, check=False).returncode == 0
