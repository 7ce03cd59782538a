"""`export.py` from the command line to a file that computes what the network computes."""

import json
import re
import shutil

import mindspore as ms
import numpy as np
import pytest
from bit_npz import golden_arrays
from mindspore import Tensor, nn
from support import colour_folder
from vit_npz import golden_arrays as vit_arrays

import export as exporting
from src import dataset, exporter
from src.checkpoint import load_pretrained, save_parameters
from src.errors import UserError
from src.export_place import check_replaceable, move
from src.model_utils.config import load_config
from src.network import describe, get_network
from src.sidecar import read_sidecar
from src.vit_map import VIT_ARCHITECTURES

NAMES = ["blue", "green", "red"]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("colours")
    colour_folder(root / "val", per_class=3)
    return root / "val"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A BiT and a ViT of three classes, as a run leaves them, with unusual preprocessing."""
    folder = tmp_path_factory.mktemp("weights")
    ms.set_context(mode=ms.GRAPH_MODE)
    np.savez(folder / "bit.npz", **golden_arrays((1, 1, 1, 1), 1, 3))
    np.savez(folder / "vit.npz", **vit_arrays(*VIT_ARCHITECTURES["vit_nano_patch8"], 3, grid=3))
    for name, kind, arguments in (("bit", "bit_tiny", {}), ("vit", "vit_nano_patch8", {"gelu": "exact"})):
        network = get_network(kind, num_classes=3, image_size=24, **arguments)
        load_pretrained(network, folder / f"{name}.npz")
        record = {
            "format": 1, "network": kind, "class_num": 3, "class_names": NAMES, "eval_image_size": [24, 24],
            "eval_crop_ratio": 0.75, "interpolation": "BICUBIC", "image_mean": [120.0, 110.0, 100.0],
            "image_std": [60.0, 50.0, 40.0], **describe(network),
        }  # fmt: skip
        save_parameters(network.parameters_dict(), folder / f"{name}.ckpt", record)
    return folder


def logits_of(path, batch):
    if path.suffix == ".onnx":
        return exporter._onnx_runner(path)(batch)
    return nn.GraphCell(ms.load(str(path)))(Tensor(batch)).asnumpy()


@pytest.mark.parametrize("family", ["bit", "vit"])
@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"batch_size": 2}, "out.mindir"),
        ({"batch_size": 2, "mindir_version": 1}, "out.mindir"),
        ({"file_format": "onnx"}, "out.onnx"),
    ],
)
def test_the_file_computes_what_the_network_computes(
    family, keys, name, checkpoints, images, tmp_path, capsys
):
    arguments = {"checkpoint_path": checkpoints / f"{family}.ckpt", "eval_path": images, **keys}
    arguments.update(file_name=tmp_path / "mäde (1)" / "out", device_target="CPU")
    assert exporting.main([f"--{key}={value}" for key, value in arguments.items()]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"compared on 9 images: .* top-1 equal on 100.0 %", printed)
    path = tmp_path / "mäde (1)" / name
    assert sorted(p.name for p in path.parent.iterdir()) == [name, f"{name}.json"]

    sidecar = read_sidecar(path)
    batch = None if path.suffix == ".onnx" else 2
    assert sidecar["input"]["shape"] == [batch, 3, 24, 24]
    assert sidecar["output"]["shape"] == [batch, 3]
    assert sidecar["class_names"] == NAMES
    assert sidecar["preprocess"] == {
        "eval_image_size": [24, 24], "eval_crop_ratio": 0.75, "interpolation": "BICUBIC",
        "image_mean": [120.0, 110.0, 100.0], "image_std": [60.0, 50.0, 40.0],
    }  # fmt: skip
    assert sidecar["check"]["largest_difference"] < 1e-4
    assert re.fullmatch("[0-9a-f]{64}", sidecar["checkpoint"]["sha256"])

    samples = dataset.open_eval(load_config([f"--eval_path={images}"]), None)
    ((inputs, _),) = dataset.eval_batches(load_config([]), samples, sidecar["preprocess"])
    gelu = {"gelu": "exact"} if family == "vit" else {}
    network = get_network(sidecar["network"], num_classes=3, image_size=24, **gelu)
    load_pretrained(network, checkpoints / f"{family}.npz")
    network.set_train(False)
    wanted = network(Tensor(inputs[:2])).asnumpy()
    np.testing.assert_allclose(logits_of(path, inputs[:2]), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("what", ["difference", "nan"])
def test_a_file_that_computes_something_else_is_not_kept(
    what, checkpoints, images, tmp_path, capsys, monkeypatch
):
    fold = exporter.fold

    def spoil(network):
        fold(network)
        bias = network.head.conv.bias
        bias.set_data(bias + (0.1 if what == "difference" else np.nan))
        return network

    monkeypatch.setattr(exporter, "fold", spoil)
    arguments = [f"--checkpoint_path={checkpoints / 'bit.ckpt'}", f"--eval_path={images}"]
    assert exporting.main([*arguments, f"--file_name={tmp_path / 'bad'}"]) == 1
    assert "bad.mindir was not kept: its logits differ" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--class_num=4"], "class_num is 4, but .* was made with 3"),
        (["--backbone=bit_r50x1"], "backbone is bit_r50x1, but .* was made with bit_tiny"),
        (["--image_mean=0"], "image_mean is .* was made with"),
        (["--file_format=AIR"], "AIR is made on Ascend alone, and this is CPU"),
        (["--checkpoint_path=no.ckpt"], "no.ckpt"),
        (["--eval_path=/no/such"], "/no/such"),
    ],
)
def test_what_cannot_be_exported_is_one_line(arguments, text, checkpoints, images, tmp_path, capsys):
    keys = {"checkpoint_path": checkpoints / "bit.ckpt", "eval_path": images, "file_name": tmp_path / "x"}
    given = {argument[2:].split("=")[0] for argument in arguments}
    base = [f"--{key}={value}" for key, value in keys.items() if key not in given]
    assert exporting.main([*base, *arguments, "--device_target=CPU"]) == 1
    captured = capsys.readouterr()
    (line,) = [text for text in captured.err.splitlines() if text.startswith("error: ")]
    assert re.search(text, line)
    assert not list(tmp_path.iterdir())


def test_without_images_random_ones_are_compared_and_that_is_said(checkpoints, tmp_path, capsys):
    arguments = [f"--checkpoint_path={checkpoints / 'vit.ckpt'}", f"--file_name={tmp_path / 'x.mindir'}"]
    assert exporting.main([*arguments, "--check_images=5"]) == 0
    out = capsys.readouterr().out
    assert "checked on random images" in out
    assert "compared on 5 images" in out
    content = json.loads((tmp_path / "x.mindir.json").read_text())
    assert content["check"]["images"] == 5
    assert (tmp_path / "x.mindir").stat().st_mode & 0o777 == 0o644


def test_nothing_of_the_users_is_removed(checkpoints, tmp_path, capsys):
    base = [f"--checkpoint_path={checkpoints / 'vit.ckpt'}", "--check_images=1"]
    (tmp_path / "net.mindir").mkdir()
    (tmp_path / "net.mindir" / "mine").touch()
    for name in ("net", "net.mindir", "."):
        assert exporting.main([*base, f"--file_name={tmp_path / name}"]) == 1
        assert "is a folder" in capsys.readouterr().err
    assert (tmp_path / "net.mindir" / "mine").exists()
    assert exporting.main([*base, f"--file_name={tmp_path / 'net.onnx'}"]) == 1
    assert "file_name ends in .onnx, but file_format MINDIR is .mindir" in capsys.readouterr().err


def test_a_folder_of_weights_is_replaced_only_when_it_holds_nothing_else(tmp_path):
    new, old = tmp_path / "new", tmp_path / "net_variables"
    for folder in (new, old):
        folder.mkdir()
    (new / "data_0").write_text("new")
    new.chmod(0o700)
    (old / "data_0").write_text("old")
    (old / "data_1").write_text("old")
    check_replaceable([old, tmp_path / "nothing"])
    move(new, old)
    assert {path.name: path.read_text() for path in old.iterdir()} == {"data_0": "new"}
    assert old.stat().st_mode & 0o777 == 0o755
    (old / "notes.txt").touch()
    with pytest.raises(UserError, match="holds other files"):
        check_replaceable([old])


def test_an_old_sidecar_never_stands_beside_a_new_file(checkpoints, tmp_path, monkeypatch):
    (tmp_path / "x.mindir.json").write_text("of an earlier export")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporter, "write_sidecar", fail)
    arguments = [f"--checkpoint_path={checkpoints / 'vit.ckpt'}", f"--file_name={tmp_path / 'x'}"]
    assert exporting.main([*arguments, "--check_images=1"]) == 1
    assert not (tmp_path / "x.mindir.json").exists()


def test_a_broken_image_is_passed_over_when_told(checkpoints, images, tmp_path, capsys):
    shutil.copytree(images, tmp_path / "val")
    for index in range(3):
        (tmp_path / "val" / "blue" / f"{index}.png").write_bytes(b"\x89PNG")
    keys = [f"--checkpoint_path={checkpoints / 'vit.ckpt'}", f"--file_name={tmp_path / 'x'}"]
    keys += [f"--eval_path={tmp_path / 'val'}", "--check_images=2"]
    assert exporting.main(keys) == 1
    assert "blue/0.png" in capsys.readouterr().err
    assert exporting.main([*keys, "--on_bad_image=skip"]) == 0
    assert "compared on 2 images" in capsys.readouterr().out


def test_googles_file_is_exported_at_a_size_of_its_own(tmp_path, images, capsys):
    arrays = golden_arrays((1, 1, 1, 1), 1, 21)
    np.savez(tmp_path / "bit_tiny.npz", **arrays)
    arguments = [f"--checkpoint_path={tmp_path / 'bit_tiny.npz'}"]
    assert exporting.main(arguments) == 1
    assert "set eval_image_size" in capsys.readouterr().err
    assert exporting.main([*arguments, "--eval_image_size=16,24", "--check_images=2"]) == 0
    assert read_sidecar(tmp_path / "bit_tiny.mindir")["input"]["shape"] == [1, 3, 16, 24]
