"""`scripts/run_infer_310.sh` on a CPU: from a checkpoint to the accuracy that `eval.py` prints."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bit_npz import golden_arrays
from support import colour_folder

import eval as evaluation
import export as exporting

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "run_infer_310.sh"


def run(*arguments, cwd, **environ):
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environ}
    return subprocess.run(
        ["bash", str(SCRIPT), *map(str, arguments)],
        cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.mark.skipif(
    not (os.environ.get("MINDSPORE_LITE_HOME") or (ROOT / ".lite").exists()) or not shutil.which("cmake"),
    reason="the C++ runtime is not at hand: scripts/get_lite_cpu.sh",
)
def test_the_programs_accuracy_is_that_of_eval(tmp_path, capsys):
    place = tmp_path / "a place (1)"
    colour_folder(place / "val", classes=("a", "b", "c", "d", "e", "f"), per_class=5, size=(40, 50))
    np.savez(place / "bit_tiny.npz", **golden_arrays((1, 1, 1, 1), 1, 6))
    keys = [f"--checkpoint_path={place / 'bit_tiny.npz'}", f"--eval_path={place / 'val'}"]
    keys += ["--eval_image_size=32", "--device_target=CPU"]
    assert exporting.main([*keys, "--mindir_version=1", "--batch_size=4"]) == 0
    capsys.readouterr()
    assert evaluation.main(keys) == 0
    expected = dict(re.findall(r"^(\w+)=([\d.]+)$", capsys.readouterr().out, re.MULTILINE))

    done = run("bit_tiny.mindir", "bit", "imagenet", "val", 0, cwd=place, DEVICE_TARGET="CPU")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(
        r"Total data: 30, top1 accuracy: ([\d.]+), top5 accuracy: ([\d.]+)\n", (place / "acc.log").read_text()
    )
    assert done.stdout.endswith(found[0])
    for value, key in zip(found.groups(), ("accuracy", "top5_accuracy")):
        assert float(value) == float(expected[key])
    (folder,) = (place / "infer_310").iterdir()
    assert (
        "NN inference cost average time" in (folder / "time_Result" / "test_perform_static.txt").read_text()
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["m.mindir", "bit"], "expected four or five arguments, got 2"),
        (["no.mindir", "bit", "imagenet", "."], "no.mindir does not exist"),
        (["m.mindir", "bit", "imagenet", "nowhere"], "the images nowhere do not exist"),
        (["m.mindir", "resnet", "imagenet", "."], "NET_TYPE is vit or bit, not 'resnet'"),
        (["m.mindir", "bit", "mnist", "."], "DATASET is imagenet, cifar10 or cifar100, not 'mnist'"),
        (["m.mindir", "bit", "imagenet", ".", "one"], "DEVICE_ID is a number"),
        (["m.mindir", "bit", "imagenet", "."], "m.mindir is no bit by its m.mindir.json"),
        (["n.mindir", "bit", "imagenet", "."], "n.mindir.json is missing"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, text, tmp_path):
    (tmp_path / "m.mindir").touch()
    (tmp_path / "n.mindir").touch()
    (tmp_path / "m.mindir.json").write_text('{"network": "vit_nano_patch8"}')
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert text in done.stderr


def test_another_device_is_refused(tmp_path):
    (tmp_path / "m.mindir").touch()
    done = run("m.mindir", "bit", "imagenet", ".", cwd=tmp_path, DEVICE_TARGET="TPU")
    assert "DEVICE_TARGET is Ascend310, Ascend or CPU, not 'TPU'" in done.stderr
