"""The C++ program beside onnxruntime: one exported network, one image at a time, as many threads as cores."""

from __future__ import annotations

import importlib.util
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.rounds import ROOT, Worker, WorkerError, in_turn

IMAGES = 32  # a round; both sides tell its median


class Program:
    """A command that is started anew for each round; to `in_turn` it is a worker."""

    def __init__(self, command: Sequence[str]):
        self._command, self._peak = command, 0

    def times(self, count: int) -> list[float]:
        """The median latency, in seconds, of each of `count` starts."""
        return [self._time() for _ in range(count)]

    def peak_memory(self) -> float:
        """Bytes at most so far."""
        return self._peak

    def _time(self) -> float:
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        found = re.search(r"p50 ([\d.]+) ms", said)
        if process.returncode or not found:
            raise WorkerError(f"the C++ program ended with {process.returncode}: {said.strip()}")
        self._peak = max(self._peak, 1024 * usage.ru_maxrss)
        return float(found[1]) / 1000


class Onnx:
    """Takes the median of as many images as the program does."""

    def __init__(self, model: Path, size: int):
        self._worker = Worker(sys.executable, "benchmarks.onnx_side", {"model": str(model), "size": size})

    def times(self, count: int) -> list[float]:
        """As `Program.times`."""
        return [statistics.median(self._worker.times(IMAGES)) for _ in range(count)]

    def peak_memory(self) -> float:
        """Bytes at most so far."""
        return self._worker.peak_memory()

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self._worker.__exit__(*error)


def program(model: Path, folder: Path, size: int) -> list[str]:
    """Return the command of `ascend310_infer/out/infer` for `IMAGES` images, which are made in `folder`."""
    tensors = folder / "tensors"
    tensors.mkdir()
    image = np.random.default_rng(0).uniform(-1, 1, (1, 3, size, size)).astype(np.float32)
    for number in range(IMAGES):
        (tensors / f"{number}.bin").write_bytes(image.tobytes())
    options = {"model": model, "input_dir": tensors, "output_dir": folder / "logits"}
    options |= {"time_dir": folder / "time", "device": "CPU", "progress": 0}
    options["threads"] = len(os.sched_getaffinity(0))
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    return [str(ROOT / "ascend310_infer/out/infer"), *words]


def missing() -> str:
    """What this part lacks here, in words; empty for nothing."""
    if not Path(os.environ.get("MINDSPORE_LITE_HOME") or ROOT / ".lite/mindspore_lite").is_dir():
        return "MINDSPORE_LITE_HOME (bash scripts/get_lite_cpu.sh)"
    if not all(map(importlib.util.find_spec, ("onnx", "onnxruntime"))):
        return "onnxruntime (pip install -r requirements-onnx.txt)"
    return ""


def latencies(keys: dict, folder: Path, *, size: int, rounds: int) -> tuple[list[list[float]], list[float]]:
    """Seconds of an image, of the program and of onnxruntime, a median a round; and both peaks in bytes.

    Args:
        keys: of a training; one step of it makes the weights.
        folder: for all files.
        size: side of the images in pixels.
        rounds: how many.
    """
    run(["bash", "ascend310_infer/build.sh"])
    trained = {**keys, "train_image_size": size, "max_steps": 1}
    script("train.py", {**trained, "save_checkpoint_path": folder, "run_name": "run"})
    exported = {"checkpoint_path": folder / "run/last.ckpt", "check_images": 2, "file_name": folder / "net"}
    script("export.py", {**exported, "mindir_version": 1})
    script("export.py", {**exported, "file_format": "ONNX"})
    with Onnx(folder / "net.onnx", size) as onnx:
        workers = [Program(program(folder / "net.mindir", folder, size)), onnx]
        times = in_turn(workers, rounds=rounds, count=1)
        return times, [worker.peak_memory() for worker in workers]


def script(name: str, keys: dict) -> None:
    """Run one of the project's scripts to its end."""
    run([sys.executable, name, *(f"--{key}={value}" for key, value in keys.items())])


def run(command: list[str]) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise WorkerError(f"{' '.join(command[:2])} ended with {done.returncode}: {said[-1] if said else ''}")
    return done.stdout
