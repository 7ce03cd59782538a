import contextlib
import gc
import os
import resource
import tracemalloc
import weakref

import mindspore as ms
import numpy as np
import pytest
from bit_npz import flip_byte
from safetensors.numpy import save_file
from weight_files import (
    ARRAYS,
    RECORD,
    RNG,
    assert_same,
    both,
    read,
    refused,
    safetensors,
    value,
    weights,
    written,
)

from src.array_io import Weight
from src.errors import UserError
from src.weight_file import open_weights, write_weights


@both
def test_arrays_and_record_come_back_as_they_were(tmp_path, suffix):
    arrays, record = read(written(tmp_path / f"x{suffix}"))
    assert_same(arrays, ARRAYS)
    assert record == RECORD


@both
def test_shapes_are_known_before_reading(tmp_path, suffix):
    with open_weights(written(tmp_path / f"x{suffix}")) as file:
        assert file.shapes == {name: array.shape for name, array in ARRAYS.items()}


@both
def test_a_transposed_view_is_written_in_its_own_order(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("src.array_io.BLOCK_BYTES", 40)
    stored = RNG.standard_normal((7, 3, 2, 5), dtype=np.float32)
    arrays, _ = read(written(tmp_path / f"x{suffix}", {"w": stored.transpose(3, 2, 0, 1)}))
    np.testing.assert_array_equal(arrays["w"], np.einsum("hwio->oihw", stored))


@both
def test_half_floats_are_read_as_float32(tmp_path, suffix):
    stored = np.array([[1.5, -(2.0**-24), 65504]], np.float16)
    arrays, _ = read(written(tmp_path / f"x{suffix}", {"w": stored}))
    assert_same(arrays, {"w": stored.astype(np.float32)})


@both
def test_one_array_is_in_memory_at_a_time(tmp_path, suffix):
    alive = []

    def load():
        gc.collect()
        assert not any(reference() is not None for reference in alive)
        array = np.ones((3, 5), np.float32)
        alive.append(weakref.ref(array))
        return array

    write_weights(tmp_path / f"x{suffix}", [Weight(f"w{i}", (3, 5), load) for i in range(3)])
    assert len(alive) == 3


@pytest.mark.parametrize("suffix", ["ckpt", "safetensors"])
def test_bfloat16_of_mindspore_is_read_as_float32(tmp_path, suffix):
    param = {"name": "w", "data": ms.Tensor(np.float32([[1, -3.140625]])).astype(ms.bfloat16)}
    if suffix == "ckpt":
        ms.save_checkpoint([param], str(tmp_path / "x.ckpt"))
    else:  # MindSpore cannot write it
        header = {"w": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}}
        (tmp_path / "x.safetensors").write_bytes(safetensors(header, b"\x80\x3f\x49\xc0"))
    arrays, _ = read(tmp_path / f"x.{suffix}")
    assert_same(arrays, {"w": np.float32([[1, -3.140625]])})


@both
def test_every_shortened_file_is_refused(tmp_path, suffix):
    whole, path = written(tmp_path / f"whole{suffix}").read_bytes(), tmp_path / f"x{suffix}"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert "download it again" in refused(path)


@both
def test_every_flipped_byte_is_found(tmp_path, suffix):
    path = written(tmp_path / f"x{suffix}")
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole)
        flip_byte(path, position)
        refused(path)


@pytest.mark.parametrize("suffix", ["ckpt", "safetensors"])
def test_no_damage_without_a_checksum_escapes_as_another_error_or_takes_much_memory(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    if suffix == "ckpt":
        whole = b"".join(value(name, (3, 2), content=bytes(24)) for name in ("alpha", "beta", "gamma"))
    else:
        save_file({name: np.zeros((3, 2), np.float32) for name in ("alpha", "beta")}, path)
        whole = path.read_bytes()
    rng = np.random.default_rng(1)
    tracemalloc.start()
    for _ in range(800):
        data = bytearray(whole)
        for position in rng.integers(0, len(data), rng.integers(1, 4)):
            data[position] = rng.integers(0, 256)
        path.write_bytes(data[: rng.integers(len(data) // 2, len(data) + 1)])
        with contextlib.suppress(UserError):
            read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


@both
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html></html>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is text"),
        (b"PK\x03\x04" + bytes(range(200)), "is "),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "is "),
        (b"\0" * 300, "is "),
        (b"\xff" * 300, "is "),
    ],
)
def test_something_else_under_the_name_is_refused(tmp_path, suffix, data, reason):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(data)
    text = refused(path)
    assert f"({len(data)} bytes) {reason}" in text
    assert "download it again" in text or "looks like a .npz file: rename it" in text


@both
def test_a_missing_file_is_named(tmp_path, suffix):
    assert "does not exist" in refused(tmp_path / f"none{suffix}")


@both
def test_a_folder_is_refused(tmp_path, suffix):
    (tmp_path / f"x{suffix}").mkdir()
    assert "not a file" in refused(tmp_path / f"x{suffix}")


def test_another_suffix_is_refused(tmp_path):
    assert "'.pth' is not that of a weight file, .ckpt or .safetensors" in refused(tmp_path / "x.pth")


def test_a_file_that_shrinks_after_it_was_opened_is_an_error(tmp_path):
    path = written(tmp_path / "x.ckpt", {"w": np.ones(100_000, np.float32)})
    with open_weights(path) as file:
        os.truncate(path, 200_000)
        with pytest.raises(UserError, match="'w': is cut short"):
            file.read("w")


@both
@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_a_fault_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, suffix, fault):
    path = written(tmp_path / f"x{suffix}")
    before = path.read_bytes()

    def load():
        assert path.read_bytes() == before
        raise fault

    with pytest.raises(fault):
        write_weights(path, [*weights(ARRAYS), Weight("last", (2,), load)], RECORD)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@both
def test_a_full_disk_is_an_error_and_leaves_the_old_file(tmp_path, suffix):
    path = written(tmp_path / f"x{suffix}")
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(UserError, match=rf"cannot write .*x{suffix}: File too large"):
            written(path, {"large": np.zeros(50_000, np.float32)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@both
def test_an_array_that_is_not_as_announced_is_not_written(tmp_path, suffix):
    wrong = Weight("w", (2, 3), lambda: np.zeros((3, 2), np.float32))
    with pytest.raises(ValueError, match=r"w: announced \(2, 3\) float32, got \(3, 2\) float32"):
        write_weights(tmp_path / f"x{suffix}", [wrong])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot write"):
        written(tmp_path / "file" / "x.ckpt")


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path):
    (tmp_path / "x.ckpt").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        written(tmp_path / "x.ckpt")
    assert list(tmp_path.iterdir()) == [tmp_path / "x.ckpt"]


def test_an_unknown_suffix_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match=r"'\.pth'"):
        written(tmp_path / "sub" / "x.pth")
    assert list(tmp_path.iterdir()) == []


@both
def test_missing_folders_are_created_and_the_umask_is_kept(tmp_path, suffix):
    old = os.umask(0o022)
    try:
        path = written(tmp_path / "a" / "b" / f"x{suffix}")
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_read_only_file_of_mindspore_is_replaced(tmp_path):
    ms.save_checkpoint([{"name": "w", "data": ms.Tensor([1.0])}], str(tmp_path / "x.ckpt"))
    assert_same(read(written(tmp_path / "x.ckpt"))[0], ARRAYS)
