import logging
import math
import re
import time

import numpy as np
import pytest
from driven import run_steps

from src.callback import LossRecorder, Stopwatch
from src.checkpointing import Evaluation
from src.progress import Progress
from src.state_monitor import StateMonitor

NUMBER = r"\d+\.\d\d"


@pytest.fixture
def drive(caplog):
    """Run steps and return the log lines, without those that say what is to come."""

    def run(*, steps, steps_per_epoch, every=0, log_every=1, accuracies=(), losses=None, first=0, slow=None):
        caplog.set_level(logging.INFO, logger="src.state_monitor")
        progress, clock, scores = Progress(step=first, applied=first), Stopwatch(), iter(accuracies)
        evaluation = Evaluation(
            progress,
            evaluate=(lambda: {"top1": next(scores), "top5": None, "samples": 9}) if accuracies else None,
            due=lambda step: every > 0 and step % every == 0,
            total_steps=steps,
            clock=clock,
        )
        recorder = LossRecorder(progress, np.linspace(0.1, 0.1 * steps, steps))
        monitor = StateMonitor(
            progress,
            losses=recorder,
            evaluation=evaluation,
            clock=clock,
            total_steps=steps,
            batch_size=8,
            steps_per_epoch=steps_per_epoch,
            log_every=log_every,
        )
        callbacks = [recorder, evaluation, *([slow] if slow else []), monitor]
        taken = run_steps(callbacks, losses or [step + 1.0 for step in range(first, steps + 9)])
        assert taken == steps - first
        lines = [record.getMessage() for record in caplog.records]
        return [line for line in lines if not line.startswith(("compiling", "about", "waited"))]

    return run


def epoch(index, loss, lr, accuracy):
    return (
        rf"epoch\[{index}\], epoch time: {NUMBER}s, per step time: \d+\.\d\d\d\ds, "
        rf"loss={loss:.6f}, lr={lr:.6f}, fps={NUMBER}, accuracy={accuracy:.6f}, eval_cost={NUMBER}, "
        r"data_wait=\d+%"
    )


def test_the_lines_have_the_form_that_users_grep(drive):
    lines = drive(steps=4, steps_per_epoch=2, every=2, log_every=2, accuracies=[0.25, 0.5])
    expected = [
        rf"compile time used={NUMBER}s",
        epoch(0, 1.5, 0.2, 0.25),
        epoch(1, 3.5, 0.4, 0.5),
        rf"training time used={NUMBER}s",
        r"last_metric\[0\.50000\]",
        rf"ip\[[\d.]+\], mean_fps\[{NUMBER}\]",
    ]
    assert len(lines) == len(expected)
    for text, pattern in zip(lines, expected):
        assert re.fullmatch(pattern, text), text


def test_a_resumed_run_counts_on(drive):
    lines = drive(steps=6, steps_per_epoch=2, every=2, log_every=1, accuracies=[0.25, 0.5], first=3)
    assert [line.split(",")[0] for line in lines[1:-3]] == ["epoch[1]", "step[5/6]", "epoch[2]"]
    assert "loss=4.000000, lr=0.400000" in lines[1]


@pytest.mark.parametrize(
    ("steps", "steps_per_epoch", "log_every", "expected"),
    [
        (7, 100, 3, ["step[3/7]", "step[6/7]", "epoch[0]"]),
        (9, 4, 3, ["step[3/9]", "epoch[0]", "step[7/9]", "epoch[1]", "epoch[2]"]),
        (7, 1, 3, ["epoch[2]", "epoch[5]", "epoch[6]"]),
        (9, 2, 3, ["epoch[1]", "epoch[3]", "epoch[4]"]),
    ],
)
def test_long_epochs_get_lines_in_between_and_short_ones_share_a_line(
    drive, steps, steps_per_epoch, log_every, expected
):
    lines = drive(steps=steps, steps_per_epoch=steps_per_epoch, log_every=log_every)
    assert [line.split(",")[0] for line in lines[1:-2]] == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_step_is_left_out_of_the_mean(drive, bad):
    lines = drive(steps=3, steps_per_epoch=3, losses=[1.0, bad, 4.0], log_every=3)
    assert [line for line in lines if "loss=2.500000" in line]


def test_a_run_whose_images_come_too_slowly_says_so_once(drive, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Slow(Evaluation):
        """Three seconds of a step that takes four are spent waiting for images."""

        def __init__(self):
            pass

        def on_train_begin(self, run_context):
            pass

        def on_train_step_begin(self, run_context):
            now[0] += 3.0

        def on_train_step_end(self, run_context):
            now[0] += 1.0

    lines = drive(steps=40, steps_per_epoch=40, log_every=10, slow=Slow())
    waits = [line for line in lines if line.endswith("data_wait=75%")]
    assert len(waits) == 5  # a line in half a minute, at least
    (warning,) = [line for line in lines if "the images are the limit" in line]
    assert "75 % of the time" in warning
    assert "train_num_workers" in warning
