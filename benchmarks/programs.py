"""Whole programs of ours, timed from outside: the start of a training, and the conversion of weights."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.rounds import ROOT, WorkerError
from src.npz_map import BIT_ARCHITECTURES, BitArchitecture, bit_params

POLL = 0.02  # seconds


def first_step(run_name: str, folder: Path, keys: dict, cache: Path) -> float:
    """Seconds from the start of `train.py` to its first row of metrics.csv; the run is ended then.

    Args:
        run_name: in `folder`.
        folder: of the runs.
        keys: of the configuration.
        cache: stands for the user's cache folder.
    """
    arguments = {**keys, "run_name": run_name, "save_checkpoint_path": folder, "log_every": 1}
    command = [sys.executable, "train.py", *(f"--{key}={value}" for key, value in arguments.items())]
    start = time.perf_counter()
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    metrics = folder / run_name / "metrics.csv"
    while process.poll() is None:
        if metrics.is_file() and metrics.read_text(encoding="utf-8").count("\n") > 1:
            seconds = time.perf_counter() - start
            process.kill()
            process.communicate()
            return seconds
        time.sleep(POLL)
    raise WorkerError(process.communicate()[1].decode().strip().splitlines()[-1])


def conversion(folder: Path) -> tuple[float, float, float]:
    """Convert a file like Google's of bit_r152x4. Returns (seconds, peak bytes, bytes of the file)."""
    source = folder / "BiT-M-R152x4.npz"
    writer = multiprocessing.get_context("spawn").Process(target=_write_weights, args=(source,))
    writer.start()  # in a process of its own: a child's peak begins at that of its parent
    writer.join()
    if writer.exitcode:
        raise WorkerError(f"the file for convert_npz2ckpt.py could not be made in {folder}")
    command = [sys.executable, "convert_npz2ckpt.py", f"--npz_path={source}"]
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise WorkerError(f"convert_npz2ckpt.py ended with {status}")
    return time.perf_counter() - start, 1024 * usage.ru_maxrss, source.stat().st_size


def _write_weights(path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {}
    for key, _, axes, shape in bit_params(BitArchitecture(*BIT_ARCHITECTURES["bit_r152x4"], 21843)):
        stored = tuple(shape[axis] for axis in np.argsort(axes)) if axes else shape
        arrays[key] = rng.standard_normal(stored, np.float32)
    np.savez(path, **arrays)


def room_for_conversion(folder: Path) -> bool:
    """Whether the file and its conversion fit onto the disk."""
    return shutil.disk_usage(folder).free > 9e9
