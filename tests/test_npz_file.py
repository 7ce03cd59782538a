import io
import zipfile

import numpy as np
import pytest
from bit_npz import flip_byte

from src.errors import UserError
from src.npz_file import open_npz

ARRAY = np.arange(30, dtype=np.float32).reshape(2, 3, 5) / 7


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


def read(path, name="a"):
    with open_npz(path) as npz:
        return npz.read(name)


def read_all(path):
    with open_npz(path) as npz:
        return [npz.read(name) for name in npz.shapes]


def refused(path):
    with pytest.raises(UserError) as caught:
        read_all(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def refused_download(path):
    text = refused(path)
    assert f"({path.stat().st_size} bytes)" in text
    assert "download it again" in text
    return text


def member(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def zipped(path, *members, **kwargs):
    with zipfile.ZipFile(path, "w", **kwargs) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def header(descr="<f4", shape="(2,)", order="False", data=b"\0" * 8):
    text = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_shapes_and_arrays_are_those_that_were_saved(tmp_path, save):
    save(tmp_path / "x.npz", **{"deep/key": ARRAY, "scalar": np.float32(2.5)})
    with open_npz(tmp_path / "x.npz") as npz:
        assert npz.shapes == {"deep/key": (2, 3, 5), "scalar": ()}
        np.testing.assert_array_equal(npz.read("deep/key"), ARRAY)
        assert npz.read("scalar") == 2.5


def test_an_array_in_fortran_order_is_not_transposed(tmp_path):
    np.testing.assert_array_equal(read(saved(tmp_path / "x.npz", a=np.asfortranarray(ARRAY))), ARRAY)


@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4", ">f2"])
def test_other_floats_become_float32(tmp_path, dtype):
    stored = ARRAY.astype(dtype)
    array = read(saved(tmp_path / "x.npz", a=stored))
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, stored.astype(np.float32))


@pytest.mark.parametrize("descr", ["|V2", "<V2"])
def test_raw_bfloat16_becomes_float32(tmp_path, descr):
    bits = np.array([0x3F80, 0xC049, 0x0001, 0x7F80, 0x8000, 0x3E20], "<u2")
    data = header(descr, "(2, 3)", data=bits.tobytes())
    array = read(zipped(tmp_path / "x.npz", ("a.npy", data)))
    wanted = np.float32([[1, -3.140625, 2.0**-133], [np.inf, -0.0, 0.15625]])
    np.testing.assert_array_equal(array.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("array", [np.arange(3), np.array([True]), np.array(["x"]), np.zeros(2, "c8")])
def test_other_types_are_refused_by_name(tmp_path, array):
    assert f"'a' is {array.dtype.name}" in refused(saved(tmp_path / "x.npz", a=array))


def test_pickled_objects_are_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "opened"), "w")

    assert "'a' is object" in refused(saved(tmp_path / "x.npz", a=np.array([Trap()], dtype=object)))
    assert not (tmp_path / "opened").exists()


def test_a_missing_file_is_named(tmp_path):
    assert "does not exist" in refused(tmp_path / "none.npz")


def test_a_folder_is_refused(tmp_path):
    assert "not a file" in refused(tmp_path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>404</html>", "web page"),
        (b"\n <html>\xe6\x88\x91</html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "not a whole npz"),
        (b"PK\x03\x04" + bytes(200), "not a whole npz"),
    ],
)
def test_something_else_under_the_name_is_refused(tmp_path, data, reason):
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    assert reason in refused_download(path)


def test_every_shortened_file_is_refused(tmp_path):
    whole = saved(tmp_path / "whole.npz", a=ARRAY, b=ARRAY).read_bytes()
    path = tmp_path / "x.npz"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        refused_download(path)


def test_a_flipped_byte_in_the_data_is_found(tmp_path):
    path = saved(tmp_path / "x.npz", a=np.zeros(10_000, np.float32))
    flip_byte(path, 30_000)
    assert "'a' cannot be read (Bad CRC" in refused_download(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_no_flipped_byte_changes_a_value_or_escapes_as_another_error(tmp_path, save):
    save(tmp_path / "whole.npz", a=ARRAY)
    whole, path = (tmp_path / "whole.npz").read_bytes(), tmp_path / "x.npz"
    for position in range(len(whole)):
        path.write_bytes(whole)
        flip_byte(path, position)
        try:
            arrays = read_all(path)
        except UserError:
            continue
        for array in arrays:
            np.testing.assert_array_equal(array, ARRAY)


def test_a_foreign_zip_is_refused(tmp_path):
    assert "without arrays" in refused_download(zipped(tmp_path / "x.npz", ("readme.txt", b"hello")))


def test_a_member_that_is_no_array_is_refused(tmp_path):
    path = zipped(tmp_path / "x.npz", ("a.npy", member(ARRAY)), ("script.py", b"1"))
    assert "script.py" in refused_download(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_stands_there_twice_is_refused(tmp_path):
    refused_download(zipped(tmp_path / "x.npz", ("a.npy", member(ARRAY)), ("a.npy", member(ARRAY))))


def test_an_encrypted_zip_is_refused(tmp_path):
    path = saved(tmp_path / "x.npz", a=ARRAY)
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the flags in the local header
    data[data.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    path.write_bytes(data)
    assert "encrypted" in refused_download(path)


@pytest.mark.parametrize(
    "data",
    [
        header(shape="(9000000000000,)"),
        header(shape="(1,)"),  # half of its data
        header(order="False" + " " * 20_000),
        header(shape="(-1, 2)"),
        header(shape="[2]"),
        header(shape="(2.0,)"),
        header(shape="__import__('os')"),
        header(descr="nonsense"),
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"no numpy magic",
        b"",
    ],
)
def test_a_member_with_an_absurd_header_is_refused(tmp_path, data):
    refused_download(zipped(tmp_path / "x.npz", ("a.npy", data)))


def test_a_member_that_claims_an_absurd_size_is_refused(tmp_path):
    path = saved(tmp_path / "x.npz", a=ARRAY)
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (2**31 - 1).to_bytes(4, "little")
    path.write_bytes(data)
    assert "claims 2147483647 bytes" in refused_download(path)
