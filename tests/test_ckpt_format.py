import json
import zlib

import mindspore as ms
import numpy as np
import pytest
from mindspore.train import serialization
from weight_files import ARRAYS, RECORD, RNG, assert_same, read, refused, value, written


def test_mindspore_reads_our_ckpt_and_finds_its_checksum_right(tmp_path):
    loaded = ms.load_checkpoint(str(written(tmp_path / "x.ckpt")), crc_check=True)
    assert json.loads(loaded.pop("weights_record")) == RECORD
    for name in ("conv.weight", "head.bias", "step", "mask"):
        np.testing.assert_array_equal(loaded[name].asnumpy(), ARRAYS[name], strict=True)


def test_mindspore_joins_the_slices_of_a_large_array(tmp_path, monkeypatch):
    monkeypatch.setattr("src.array_io.BLOCK_BYTES", 24)
    path = written(tmp_path / "x.ckpt")
    assert path.read_bytes().count(b"conv.weight") == 5
    loaded = ms.load_checkpoint(str(path), crc_check=True)
    np.testing.assert_array_equal(loaded["conv.weight"].asnumpy(), ARRAYS["conv.weight"])


@pytest.mark.parametrize("crc_check", [False, True])
def test_we_read_what_mindspore_wrote(tmp_path, monkeypatch, crc_check):
    monkeypatch.setattr(serialization, "SLICE_SIZE", 1)  # KB: the large one is written in slices
    large = RNG.standard_normal((90, 7), dtype=np.float32)
    tensors = {"large": ms.Tensor(large), "half": ms.Tensor([1.5], ms.float16)}
    params = [{"name": name, "data": tensor} for name, tensor in tensors.items()]
    extra = {"epoch_num": 3, "lr": 0.25, "note": "text"}
    ms.save_checkpoint(params, str(tmp_path / "x.ckpt"), append_dict=extra, crc_check=crc_check)
    arrays, record = read(tmp_path / "x.ckpt")
    wanted = {"large": large, "half": np.float32([1.5]), "epoch_num": np.array(3), "lr": np.float32(0.25)}
    assert_same(arrays, {name: np.asarray(array) for name, array in wanted.items()})
    assert record == {}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (value("a") + value("b") + value("a"), "holds 'a' twice"),
        (value("a") + value("a"), "'a' of shape (2,) and float32 has 16 bytes"),
        (value("a", (4,)) + value("a", (2, 2)), "slices of 'a' do not belong together"),
        (value("a", (2**62, 4)), "'a' of shape"),
        (value("a", (-1,)), "'a' of shape"),
        (value("a", (1,) * 100, content=bytes(4)), "'a'"),
        (value("a", kind="Float8"), "type 'Float8', which is not supported"),
        (value("a")[:-9] + b"\xff\xff\xff\xff\x7f", "beyond its end"),
        (b"\x0a\x03\x0a\x01a", "incomplete record"),
        (value("a" * 2**21), "a text of 2097152 bytes"),
        (b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "not a MindSpore checkpoint"),
    ],
)
def test_a_ckpt_that_contradicts_itself_is_refused(tmp_path, data, reason):
    path = tmp_path / "x.ckpt"
    path.write_bytes(data)
    assert reason in refused(path)


def test_a_scalar_with_the_dims_of_early_mindspore_versions_is_read(tmp_path):
    path = tmp_path / "x.ckpt"
    path.write_bytes(value("step", (0,), "Int32", b"\x07\0\0\0"))
    assert_same(read(path)[0], {"step": np.array(7, np.int32)})


def test_a_ckpt_of_ours_without_its_checksum_is_refused(tmp_path):
    path = written(tmp_path / "x.ckpt")
    path.write_bytes(path.read_bytes()[:-17])
    assert "checksum is missing" in refused(path)


def test_the_checksum_of_a_ckpt_is_the_crc32_of_all_before_it(tmp_path):
    data = written(tmp_path / "x.ckpt").read_bytes()
    assert data[-17:] == b"crc_num" + zlib.crc32(data[:-17]).to_bytes(10, "big")
