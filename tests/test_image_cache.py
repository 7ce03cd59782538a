import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support import colour_folder

from src import dataset, image_cache
from src.errors import UserError
from src.image_cache import ImageCache
from src.image_folder import ImageFolder
from src.image_io import BadImageError
from src.model_utils.config import load_config
from src.recipe import make_recipe
from src.transforms import RandomCrop

SIZE = (9, 11)


@pytest.fixture
def root(tmp_path):
    return colour_folder(tmp_path / "train")


class Counted(ImageFolder):
    """Counts what is decoded."""

    decoded = 0

    def image(self, index):
        self.decoded += 1
        return super().image(index)


def cache_of(root, size=SIZE, how="BILINEAR"):
    samples = Counted(root)
    folder = root.parent / "cache"
    cache = ImageCache(samples, folder, size=size, resize=RandomCrop(size, size).resized, how=how)
    return samples, cache


def test_an_image_is_decoded_once_and_then_read(root):
    for decoded in (12, 0):
        samples, cache = cache_of(root)
        for _ in range(2):
            for index in range(len(cache)):
                expected = Image.open(root / samples.names[index]).resize(
                    SIZE[::-1], Image.Resampling.BILINEAR
                )
                assert np.array_equal(cache.image(index), expected)
        assert samples.decoded == decoded
        assert list(cache.labels) == list(samples.labels)


def filled(root):
    _, cache = cache_of(root)
    for index in range(len(cache)):
        cache.image(index)
    return cache


def test_another_size_and_another_filter_are_not_mistaken(root):
    filled(root)
    assert cache_of(root, size=(5, 6))[1].image(0).size == (6, 5)
    samples, cache = cache_of(root, how="BICUBIC")
    cache.image(0)
    assert samples.decoded == 1


def test_an_image_of_the_same_length_but_another_time_is_not_mistaken(root):
    changed = root / filled(root).names[3]
    length = changed.stat().st_size
    Image.new("RGB", (20, 30), (7, 8, 9)).save(changed)
    changed.write_bytes(changed.read_bytes().ljust(length, b"\0"))
    os.utime(changed, ns=(1, 1))
    assert changed.stat().st_size == length
    assert (np.asarray(cache_of(root)[1].image(3)) == (7, 8, 9)).all()


def test_the_same_names_lengths_and_times_elsewhere_are_another_set(tmp_path):
    for colour in (10, 200):
        file = tmp_path / str(colour) / "train" / "a" / "1.ppm"
        file.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8), (colour,) * 3).save(file)
        os.utime(file, ns=(0, 0))
        samples = ImageFolder(file.parents[1])
        cache = ImageCache(samples, tmp_path / "c", size=SIZE, resize=RandomCrop(SIZE, SIZE).resized, how="")
        assert (np.asarray(cache.image(0)) == colour).all()


def test_pixels_whose_checksum_is_zero_are_kept_like_all_others(root, monkeypatch):
    monkeypatch.setattr(image_cache, "zlib", SimpleNamespace(crc32=lambda _: 0))
    filled(root)
    samples, cache = cache_of(root)
    cache.image(0)
    assert samples.decoded == 0


def test_the_room_on_the_disk_is_taken_at_once(root):
    cache_of(root, size=(300, 400))
    (file,) = (root.parent / "cache").glob("*/pixels")
    assert file.stat().st_blocks * 512 >= file.stat().st_size == 12 * 300 * 400 * 3


def test_a_file_that_lost_its_end_is_filled_up(root):
    expected = np.asarray(filled(root).image(11))
    for name in ("pixels", "checksums"):
        (file,) = (root.parent / "cache").glob(f"*/{name}")
        os.truncate(file, 40)
    assert np.array_equal(cache_of(root)[1].image(11), expected)
    (file,) = (root.parent / "cache").glob("*/pixels")
    with file.open("ab") as stream:
        stream.write(b"more")
    assert np.array_equal(cache_of(root)[1].image(11), expected)


def test_a_folder_among_the_images_is_refused(root):
    for folder in (root, root / "cache"):
        with pytest.raises(
            UserError, match=r"image_cache .* lies in the images' folder .*; choose one outside"
        ):
            ImageCache(ImageFolder(root), folder, size=SIZE, resize=RandomCrop(SIZE, SIZE).resized, how="")
    assert not (root / "cache").exists()


def test_a_row_that_was_written_in_part_is_made_again(root):
    samples, cache = cache_of(root)
    expected = np.asarray(cache.image(5))
    (file,) = (root.parent / "cache").glob("*/pixels")
    with file.open("r+b") as stream:
        stream.seek(5 * expected.size + 20)
        stream.write(bytes(40))
    samples, cache = cache_of(root)
    assert np.array_equal(cache.image(5), expected)
    assert samples.decoded == 1


def test_a_broken_image_is_told_each_time(root):
    _, cache = cache_of(root)
    (root / cache.names[2]).write_bytes(b"no image")
    for _ in range(2):
        with pytest.raises(BadImageError):
            cache.image(2)


def test_threads_and_two_openings_share_it(root):
    caches = [cache_of(root)[1] for _ in range(2)]
    expected = [np.asarray(cache_of(root)[1].image(index)) for index in range(12)]
    with ThreadPoolExecutor(4) as pool:
        for cache in caches:
            assert all(map(np.array_equal, pool.map(cache.image, [*range(12)] * 5), expected * 5))


def test_ranks_that_begin_it_at_once_do_not_take_its_files_from_each_other(root):
    with ThreadPoolExecutor(8) as pool:
        for side in range(5, 25):
            caches = [cache for _, cache in pool.map(lambda _, s=side: cache_of(root, (s, s)), range(8))]
            caches[0].image(1)
            assert all(cache._sums[1] for cache in caches)  # one and the same file


def test_a_disk_without_room_is_told_before_anything_is_written(root, monkeypatch):
    monkeypatch.setattr(image_cache.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(UserError, match=r"needs 0\.0 MB in .*cache.*make room"):
        cache_of(root)
    assert not (root.parent / "cache").exists()


def test_a_folder_that_cannot_be_written_is_told(root):
    (root.parent / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"image_cache cannot be kept in .*cache: "):
        cache_of(root)


def stream(root, **keys):
    arguments = {"dataset_path": root, "batch_size": 5, **keys}
    cfg = load_config([f"--{key}={value}" for key, value in arguments.items()])
    samples = dataset.open_train(cfg)
    recipe = make_recipe(cfg, "bit_tiny", (20, 24), num_images=12, source={})
    return dataset.train_stream(cfg, samples, recipe, indices=None, class_num=3)


def test_training_gets_the_same_images(root, tmp_path):
    plain = stream(root, train_resize_size=20, train_image_size=16, mixup=0.2)
    for _ in range(2):
        cached = stream(
            root, train_resize_size=20, train_image_size=16, mixup=0.2, image_cache=tmp_path / "c"
        )
        for (images, labels), (others, same) in zip(plain.iterate(0, 6), cached.iterate(0, 6)):
            assert np.array_equal(images, others)
            assert np.array_equal(labels, same)


@pytest.mark.parametrize("keys", [{}, {"reduced_decoding": True}, {"interpolation": "BICUBIC"}])
def test_photos_are_cached_as_they_are_decoded_for_these_keys(tmp_path, keys):
    noise = np.random.default_rng(0).integers(0, 256, (75, 100, 3), np.uint8)
    for label in "ab":
        (tmp_path / "train" / label).mkdir(parents=True)
        Image.fromarray(noise).resize((200, 150)).save(tmp_path / "train" / label / "1.jpg", quality=95)
    sizes = {"train_resize_size": 50, "train_image_size": 50, "hflip": 0}
    (expected, _), (other, _) = (
        stream(tmp_path / "train", **sizes, **more).batch(0) for more in (keys, {"interpolation": "LANCZOS"})
    )
    for _ in range(2):
        found, _ = stream(tmp_path / "train", **sizes, **keys, image_cache=tmp_path / "c").batch(0)
        assert np.array_equal(found, expected)
        assert not np.array_equal(found, other)
    assert len(list((tmp_path / "c").iterdir())) == 1


def test_random_resized_crops_are_refused(root, tmp_path):
    with pytest.raises(UserError, match=r"image_cache keeps .* before a random crop; leave it empty"):
        stream(root, train_image_size=16, crop_min=0.1, image_cache=tmp_path / "c")
