import json

import mindspore as ms
import numpy as np
import pytest
from bit_npz import flip_byte
from safetensors.numpy import load_file, save_file
from weight_files import ARRAYS, assert_same, read, refused, safetensors, written


def test_mindspore_reads_our_safetensors(tmp_path):
    path = written(tmp_path / "x.safetensors")
    loaded = ms.load_checkpoint(str(path), format="safetensors")
    np.testing.assert_array_equal(loaded["conv.weight"].asnumpy(), ARRAYS["conv.weight"])


def test_the_safetensors_package_reads_our_file(tmp_path):
    loaded = load_file(written(tmp_path / "x.safetensors"))
    assert_same({name: loaded[name] for name in ARRAYS}, ARRAYS)


def test_we_read_what_the_safetensors_package_wrote(tmp_path):
    save_file(ARRAYS, tmp_path / "x.safetensors")
    arrays, record = read(tmp_path / "x.safetensors")
    assert_same({name: arrays[name] for name in ARRAYS}, ARRAYS)
    assert record == {}


def test_the_checksum_of_mindspores_safetensors_is_checked(tmp_path):
    path = tmp_path / "x.safetensors"
    params = [{"name": name, "data": ms.Tensor(ARRAYS[name])} for name in ("head.bias", "conv.weight")]
    ms.save_checkpoint(params, str(path), format="safetensors", crc_check=True)
    assert set(read(path)[0]) == {"head.bias", "conv.weight"}
    path.chmod(0o600)
    flip_byte(path, -3)
    assert "checksum does not fit" in refused(path)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b'{"a":%s,"a":%s}' % ((json.dumps(ENTRY).encode(),) * 2), "holds a name twice"),
        ({"a": {**ENTRY, "shape": [3]}}, "'a' of shape (3,) and float32 has 8 bytes"),
        ({"a": {**ENTRY, "shape": [-2]}}, "not of whole numbers"),
        ({"a": {**ENTRY, "shape": [True, 2]}}, "not of whole numbers"),
        ({"a": {**ENTRY, "data_offsets": [8, 16]}}, "leave gaps"),
        ({"a": {**ENTRY, "data_offsets": [0]}}, "1 offsets"),
        ({"a": ENTRY, "b": ENTRY}, "overlap"),
        ({"a": {**ENTRY, "dtype": "F8_E4M3"}}, "type 'F8_E4M3', which is not supported"),
        ({"a": {"dtype": "F32"}}, "entry of 'a' is incomplete"),
        ({"a": {**ENTRY, "shape": [1], "data_offsets": [0, 4]}}, "end at byte"),
        ({"a": ENTRY, "__metadata__": {"k": 1}}, "metadata"),
        ({"a": ENTRY, "__metadata__": [1]}, "metadata"),
        ({"a": ENTRY, "__metadata__": {"crc_num": "x"}}, "is damaged"),
        ([ENTRY], "not a table"),
        (b"[" * 100_000, "is damaged"),
    ],
)
def test_a_safetensors_file_that_contradicts_itself_is_refused(tmp_path, header, reason):
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors(header))
    assert reason in refused(path)


def test_the_data_of_safetensors_start_on_a_multiple_of_eight(tmp_path):
    for length in range(8):
        data = written(tmp_path / "x.safetensors", record={"k": "x" * length}).read_bytes()
        assert int.from_bytes(data[:8], "little") % 8 == 0
