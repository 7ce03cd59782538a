"""Two processes equal one with twice the batch, from the command line to the weights, on a CPU."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import colour_folder

from src.weight_file import open_weights

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[1]
RUNS = {
    "bit": ["--backbone=bit_tiny", "--lr_max=0.003", "--mixup=0.4", "--batch_split=2", "--clip_norm=0.5"],
    "vit": ["--backbone=vit_nano_patch8", "--opt=adamw", "--lr_max=0.001", "--weight_decay=0.05",
            "--mixup=0.4", "--cutmix=1.0", "--clip_norm=0.5", "--lr_decay_mode=cosine"],
}  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("colours")
    colour_folder(root / "train", per_class=12)
    colour_folder(root / "val", per_class=3)
    return root


def arguments(images, out, batch, extra):
    common = ["--device_target=CPU", "--schedule_steps=1,5", "--eval_every=0", "--train_image_size=16"]
    common += ["--train_resize_size=18", f"--dataset_path={images}", f"--save_checkpoint_path={out}"]
    return [str(ROOT / "train.py"), *common, f"--batch_size={batch}", "--run_name=run", *extra]


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def msrun(folder, script_and_arguments, environ):
    """Run two workers; return the ended launcher and what each worker printed."""
    launcher = [
        sys.executable,
        "-m",
        "mindspore.parallel.cluster.run",
        "--worker_num=2",
        "--local_worker_num=2",
    ]
    launcher += ["--master_addr=127.0.0.1", f"--master_port={free_port()}", "--join=True"]
    environ = {**environ, "PATH": f"{Path(sys.executable).parent}:{environ['PATH']}"}
    done = subprocess.run(
        [*launcher, f"--log_dir={folder}", *script_and_arguments],
        cwd=ROOT, env=environ, timeout=500, check=False, capture_output=True, text=True,
    )  # fmt: skip
    return done, [(folder / f"worker_{rank}.log").read_text() for rank in range(2)]


@pytest.mark.parametrize("family", RUNS)
def test_two_processes_equal_one_with_twice_the_batch(family, images, tmp_path):
    environ = dict(os.environ)
    one = [sys.executable, *arguments(images, tmp_path / "one", 8, RUNS[family])]
    done = subprocess.run(one, cwd=ROOT, env=environ, check=True, capture_output=True, text=True, timeout=300)
    ended, logs = msrun(tmp_path / "log", arguments(images, tmp_path / "two", 4, RUNS[family]), environ)
    assert ended.returncode == 0, logs[0][-3000:]
    with (
        open_weights(tmp_path / "one" / "run" / "last.ckpt") as first,
        open_weights(tmp_path / "two" / "run" / "last.ckpt") as second,
    ):
        assert first.record["result"] == second.record["result"]
        assert second.record["result"]["samples"] == 9
        for name, weight in first:
            np.testing.assert_allclose(second.read(name), weight, rtol=0, atol=1e-6, err_msg=name)
    losses = [re.findall(r"loss=([\d.]+)", text) for text in (done.stdout, *logs)]
    np.testing.assert_allclose([float(x) for x in losses[1]], [float(x) for x in losses[0]], atol=2e-6)
    assert not losses[2]  # the other rank keeps quiet
    assert [p.name for p in (tmp_path / "two").iterdir()] == ["run"]  # one rank writes


def test_ranks_with_different_images_end_with_one_line(images, tmp_path):
    """One rank sees another folder: without the check they would wait for each other, or crash."""
    colour_folder(tmp_path / "other" / "train", per_class=11)
    script = tmp_path / "differ.py"
    script.write_text(
        "import os, sys, train\n"
        f"folder = {str(tmp_path / 'other')!r} if os.environ['RANK_ID'] == '1' else {str(images)!r}\n"
        "sys.exit(train.main([*sys.argv[1:], f'--dataset_path={folder}']))\n"
    )
    keys = [a for a in arguments(images, tmp_path / "out", 4, RUNS["vit"])[1:] if "dataset_path" not in a]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done, logs = msrun(tmp_path / "log", [str(script), *keys], environ)
    assert done.returncode != 0
    for log in logs:
        assert "error: the ranks differ in the training images, the evaluation images" in log
        assert "Traceback" not in log
    assert not (tmp_path / "out").exists()
