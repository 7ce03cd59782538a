"""Kills at random moments, full disks and lost ranks: what is on the disk is whole, and the run goes on."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from kills import KEYS, kill_and_resume
from launched import DISTRIBUTE
from support import colour_folder, same_files

from src.array_io import Weight
from src.errors import UserError
from src.model_utils import launching
from src.weight_file import open_weights, write_weights

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.alone


def test_training_that_is_killed_at_random_moments_ends_like_undisturbed_training(tmp_path):
    ended = kill_and_resume(tmp_path, kills=3, steps=400, seconds=8.0, seed=1)
    assert ended[0] == 1
    assert sum(ended.values()) > 1


WRITER = """
import sys, numpy as np
from src.array_io import Weight
from src.weight_file import write_weights
print("ready", flush=True)
for number in range(1, 10**6):
    arrays = [Weight(f"w{i}", (50_000,), lambda: np.full(50_000, number, np.float32)) for i in range(8)]
    write_weights(sys.argv[1], arrays, {"number": number})
"""


@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_a_checkpoint_is_whole_whenever_its_writer_is_killed(tmp_path, suffix):
    path, rng, seen = tmp_path / f"last{suffix}", np.random.default_rng(1), set()
    for _ in range(15):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE
        ) as writer:
            writer.stdout.readline()
            time.sleep(rng.uniform(0, 0.05))
            writer.kill()
        if path.exists():
            with open_weights(path) as file:
                number = file.record["number"]
                assert all((array == number).all() for _, array in file)
                seen.add(number)
    assert len(seen) > 1


def limited(size):
    """A limit on the size of files, as a full disk: writes beyond it fail."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def arguments(images, out, **keys):
    keys = {**KEYS, "dataset_path": images, "save_checkpoint_path": out, **keys}
    return [f"--{key}={value}" for key, value in keys.items()]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("colours")
    colour_folder(root / "train", per_class=10)
    colour_folder(root / "val", per_class=3)
    return root


def test_a_full_disk_is_a_warning_while_the_run_goes_on_and_an_error_at_its_end(images, tmp_path):
    keys = {"schedule_steps": "2,6", "save_checkpoint_steps": 3, "run_name": "full", "eval_every": 0}
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *arguments(images, tmp_path, **keys)],
        cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=lambda: limited(100_000),
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.count("the run goes on and tries again") == 1
    assert "error: cannot write" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "step/s" not in done.stdout + done.stderr  # a bar is for terminals
    left = {path.name for path in (tmp_path / "full").iterdir()}
    assert not {name for name in left if "ckpt" in name or "tmp" in name}


def test_a_write_that_fails_leaves_the_file_before(tmp_path):
    path = tmp_path / "last.ckpt"
    write_weights(path, [Weight("w", (3,), lambda: np.arange(3, dtype=np.float32))], {"number": 1})

    def torn():
        raise OSError(28, "No space left on device")

    arrays = [Weight("w", (9,), lambda: np.zeros(9, np.float32)), Weight("v", (2,), torn)]
    with pytest.raises(UserError, match="No space left on device"):
        write_weights(path, arrays, {"number": 2})
    with open_weights(path) as file:
        assert file.record["number"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


def distribute(images, out, name, **keys):
    """Start two ranks of a CPU."""
    environ = {key: value for key, value in os.environ.items() if key not in launching.LEFT_BEHIND}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    (out / "run.yml").write_text("")
    words = ["2", str(out / "run.yml"), *arguments(images, out, batch_size=3, run_name=name, **keys)]
    return subprocess.Popen(
        ["bash", str(ROOT / "scripts" / DISTRIBUTE), *words], cwd=out, env=environ,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def rank_process(out, rank):
    """The training process of a rank."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (path / "environ").read_text(errors="replace")
            if f"LAUNCH_NAME=rank_{rank}\0" in environ and f"LAUNCH_RUN={out}" in environ:
                return int(path.name)
    raise AssertionError(f"no rank {rank}")


def test_two_ranks_stop_at_the_same_step_when_one_is_told_to_and_go_on_to_the_last_bit(images, tmp_path):
    keys = {"schedule_steps": "5,90", "eval_every": 40, "log_every": 5}
    cut = distribute(images, tmp_path, "cut", **keys)
    metrics = tmp_path / "cut" / "metrics.csv"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 10):
        assert time.monotonic() < deadline, cut.communicate()[0]
        time.sleep(0.1)
    os.kill(rank_process(tmp_path, 1), signal.SIGTERM)
    output, _ = cut.communicate(timeout=60)
    assert cut.returncode == 143, output
    assert "another rank was told to" in output
    assert "Traceback" not in output
    again = distribute(images, tmp_path, "cut", **keys)
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    assert "resumed after step" in output
    whole = distribute(images, tmp_path, "whole", **keys)
    assert whole.communicate(timeout=120)[0]
    assert whole.returncode == 0
    same_files(tmp_path / "whole", tmp_path / "cut")
