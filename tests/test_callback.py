import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
from driven import Output, context_of

from src.callback import LossRecorder, Stopwatch
from src.errors import UserError
from src.progress import Progress
from src.train_step import get_loss_scaler


def test_bad_steps_in_a_row_stop_the_run():
    scaler = SimpleNamespace(scale_value=Output(64.0))
    recorder = LossRecorder(Progress(step=80, applied=80), np.full(99, 0.2), scaler=scaler, max_bad=4)
    for loss in [math.nan] * 3 + [1.0] + [math.nan] * 3:
        recorder.on_train_step_end(context_of(loss))
    with pytest.raises(UserError, match=r"4 steps in a row, up to step 88 of 99, .*\(learning rate 0\.2\)"):
        recorder.on_train_step_end(context_of(math.nan))


def test_overflows_under_a_dynamic_scale_are_no_bad_steps():
    recorder = LossRecorder(Progress(), np.full(99, 0.2), scaler=get_loss_scaler("dynamic", 2.0**20))
    outputs = (Output(1.5), Output(math.inf), Output(0))
    context = SimpleNamespace(original_args=lambda: SimpleNamespace(net_outputs=outputs))
    for _ in range(30):
        recorder.on_train_step_end(context)
    assert recorder.progress.bad == 0
    recorder.on_train_step_end(context_of(math.nan))
    recorder.scaler = get_loss_scaler("dynamic", 1.0)  # as low as it goes
    recorder.on_train_step_end(context)
    assert recorder.progress.bad == 2


def test_a_step_that_was_left_out_does_not_advance_the_rate():
    progress = Progress(step=1, applied=1)
    recorder = LossRecorder(progress, [0.0, 0.1, 0.2, 0.3])
    rates = []
    for loss in (1.0, math.nan, math.nan, 1.0, 1.0):
        recorder.on_train_step_end(context_of(loss))
        rates.append(recorder.rate)
    assert rates == [0.1, 0.2, 0.2, 0.2, 0.3]
    assert (progress.step, progress.applied) == (6, 4)


def test_the_mean_is_of_the_newest_steps_that_were_applied():
    recorder = LossRecorder(Progress(), np.ones(9))
    for loss in (9.0, 1.0, math.inf, 4.0):
        recorder.on_train_step_end(context_of(loss))
    assert recorder.mean(3) == 2.5
    assert recorder.mean(1) == 4.0


def test_the_clock_stands_still_in_a_pause(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = Stopwatch()
    start = clock.time()
    now[0] += 1.0
    with clock.paused():
        now[0] += 7.0
    now[0] += 2.0
    assert clock.time() - start == 3.0
