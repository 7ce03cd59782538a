"""Trains with the same command again and again while it is killed at random moments; see `main`."""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from support import colour_folder, same_files

ROOT = Path(__file__).parents[1]
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
KEYS = {
    "device_target": "CPU", "backbone": "vit_nano_patch8", "train_image_size": 16, "train_resize_size": 18,
    "batch_size": 6, "opt": "adamw", "lr_max": 0.001, "lr_decay_mode": "cosine", "clip_norm": 1, "mixup": 0.2,
    "drop_path": 0.1, "ema_decay": 0.99, "eval_every": 40, "save_checkpoint_steps": 7, "resume": "auto",
}  # fmt: skip


def kill_and_resume(folder: Path, *, kills: int, steps: int, seconds: float, seed: int) -> Counter:
    """Compare a run of so many steps with one that is killed; raise `AssertionError` when they differ.

    Args:
        folder: gets the images and both runs.
        kills: how often, at most: a run may be through before.
        steps: of the run.
        seconds: a process lives so long, at most.
        seed: of the moments and signals.

    Returns:
        How many processes each signal ended, and under 0 how many ended by themselves.
    """
    colour_folder(folder / "images" / "train", per_class=10)
    colour_folder(folder / "images" / "val", per_class=3)
    keys = {**KEYS, "dataset_path": folder / "images", "save_checkpoint_path": folder}
    command = [sys.executable, str(ROOT / "train.py"), f"--schedule_steps=5,{steps}"]
    command += [f"--{key}={value}" for key, value in keys.items()]
    draws, ended = random.Random(seed), Counter()
    for kill in range(kills + 1):
        signum = draws.choice(SIGNALS)
        wait = None if kill == kills else draws.uniform(0.3, seconds)
        ended[_life([*command, "--run_name=killed"], signum, wait)] += 1
        if ended[0]:
            break
    assert _life([*command, "--run_name=whole"], signal.SIGKILL, None) == 0
    same_files(folder / "whole", folder / "killed")
    losses = [_losses(folder / name / "metrics.csv") for name in ("whole", "killed")]
    assert losses[0] == losses[1]
    return ended


def _losses(path: Path) -> list[str]:
    """Step and loss of each row; a row of an evaluation that was made up for has no loss."""
    rows = [line.split(",")[:3] for line in path.read_text().splitlines()[1:]]
    return [f"{step} {loss}" for step, _, loss in rows if loss]


def _life(command: list[str], signum: int, seconds: float | None) -> int:
    """Start the program, send the signal after so long, and return it, or 0 when it ended by itself."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        begin = time.monotonic()
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signum)
            output, _ = process.communicate(timeout=60)
        code = process.returncode
        expected = {0: 0, -signum: signum, 128 + signum: signum}  # before Python runs a signal just kills
        assert code in expected, (code, signum, time.monotonic() - begin, output.decode()[-3000:])
        assert b"Traceback" not in output, output.decode()[-3000:]
        return expected[code]


def main() -> None:
    """The long form, by hand: `PYTHONPATH=. python tests/kills.py FOLDER --kills 100`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="a new folder for images and runs")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--seed", type=int, default=1)
    found = kill_and_resume(**vars(parser.parse_args()))
    text = ", ".join(f"{signal.Signals(n).name if n else 'ended'} {count}" for n, count in found.items())
    sys.stdout.write(f"equal to the undisturbed run; {text}\n")


if __name__ == "__main__":
    main()
