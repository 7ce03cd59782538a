import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bit_npz import bit_arrays, flip_byte

from convert_npz2ckpt import main
from src.convert import convert
from src.errors import UserError
from src.weight_file import open_weights

ROOT = "resnet/root_block/standardized_conv2d/kernel"


@pytest.fixture(scope="module")
def arrays():
    return bit_arrays(class_num=7)


@pytest.fixture
def npz(arrays, tmp_path):
    path = tmp_path / "BiT-M-tiny.npz"
    np.savez(path, **arrays)
    return path


def read(path, name):
    with open_weights(path) as file:
        return file.read(name)


def test_the_record_says_what_the_file_is(npz):
    output = npz.with_name("out.ckpt")
    record = convert(npz, output)
    assert record == {
        "format": 1,
        "network": "bit_tiny",
        "class_num": 7,
        "image_mean": [127.5] * 3,
        "image_std": [127.5] * 3,
        "source": "BiT-M-tiny.npz",
        "sha256": hashlib.sha256(npz.read_bytes()).hexdigest(),
    }
    with open_weights(output) as file:
        assert file.record == record


@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_a_kernel_of_height_width_in_out_becomes_out_in_height_width(arrays, tmp_path, suffix):
    kernel = np.arange(7 * 7 * 3 * 64, dtype=np.float32).reshape(7, 7, 3, 64)
    np.savez(tmp_path / "x.npz", **{**arrays, ROOT: kernel})
    convert(tmp_path / "x.npz", tmp_path / f"x{suffix}")
    ours = read(tmp_path / f"x{suffix}", "root.conv.weight")
    assert ours.shape == (64, 3, 7, 7)
    for o, i, h, w in ((0, 0, 0, 0), (63, 2, 6, 6), (5, 1, 4, 2), (40, 0, 1, 6), (17, 2, 3, 0)):
        assert ours[o, i, h, w] == kernel[h, w, i, o] == ((h * 7 + w) * 3 + i) * 64 + o


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_floats_are_converted_exactly(arrays, tmp_path, kind):
    if kind == "float16":
        half = {key: array.astype(np.float16) for key, array in arrays.items()}
        wanted = half[ROOT].astype(np.float32)
    else:  # the upper half of the bits of a float32, which NumPy stores as raw V2
        half = {key: array.view(np.uint16)[..., 1::2].copy().view("V2") for key, array in arrays.items()}
        wanted = (arrays[ROOT].view(np.uint32) & 0xFFFF0000).view(np.float32)
    np.savez(tmp_path / "x.npz", **half)
    convert(tmp_path / "x.npz", tmp_path / "x.ckpt")
    np.testing.assert_array_equal(read(tmp_path / "x.ckpt", "root.conv.weight"), wanted.transpose(3, 2, 0, 1))


def test_the_command_prints_a_summary(npz, capsys):
    assert main(["--npz_path", str(npz)]) == 0
    output = npz.with_suffix(".ckpt")
    text = capsys.readouterr().out
    assert "bit_tiny, 8,022,599 parameters in 45 arrays" in text
    assert "classes:    7" in text
    assert hashlib.sha256(npz.read_bytes()).hexdigest() in text
    assert f"{output}, {output.stat().st_size:,} bytes" in text


@pytest.mark.parametrize("damage", ["half", "web page", "flipped byte", "missing"])
def test_a_bad_file_is_one_line_and_leaves_nothing(npz, capsys, damage):
    data = npz.read_bytes()
    if damage == "half":
        npz.write_bytes(data[: len(data) // 2])
    elif damage == "web page":
        npz.write_bytes(b"<!DOCTYPE html><html><body>404</body></html>")
    elif damage == "flipped byte":
        flip_byte(npz, len(data) * 9 // 10)
    else:
        npz.unlink()
    left = set(npz.parent.iterdir())
    assert main(["--npz_path", str(npz), "--ckpt_path", str(npz.with_name("out.ckpt"))]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {npz}")
    assert err.count("\n") == 1
    assert "download it again" in err
    assert set(npz.parent.iterdir()) == left


def test_the_output_cannot_be_the_input(npz, tmp_path, capsys):
    link = tmp_path / "link.ckpt"
    link.symlink_to(npz)
    before = npz.read_bytes()
    for output in (npz, link):
        assert main(["--npz_path", str(npz), "--ckpt_path", str(output)]) == 1
        assert "would be overwritten" in capsys.readouterr().err
    assert npz.read_bytes() == before


def test_another_output_format_is_refused(npz, capsys):
    assert main(["--npz_path", str(npz), "--ckpt_path", str(npz.with_suffix(".pth"))]) == 1
    assert "'.pth'" in capsys.readouterr().err


def test_a_network_outside_the_zoo_is_refused_with_the_list(tmp_path):
    np.savez(tmp_path / "x.npz", **bit_arrays(units=(1, 2, 1, 1)))
    with pytest.raises(UserError, match=r"x\.npz: a BiT of \(1, 2, 1, 1\) units .* is none of .*bit_r152x4"):
        convert(tmp_path / "x.npz", tmp_path / "x.ckpt")


def test_a_vision_transformer_is_called_by_its_name(tmp_path):
    np.savez(tmp_path / "x.npz", **{"Transformer/encoder_norm/scale": np.ones(3, np.float32)})
    with pytest.raises(UserError, match=r"x\.npz: wanted a BiT file and found a Vision Transformer"):
        convert(tmp_path / "x.npz", tmp_path / "x.ckpt")


def test_converting_needs_no_mindspore():
    code = "import convert_npz2ckpt, sys; sys.exit('mindspore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1]).returncode == 0
