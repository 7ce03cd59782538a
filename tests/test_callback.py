import logging
import math
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest

from src.callback import MAX_BAD_STEPS, LossRecorder, StateMonitor, Stopwatch
from src.checkpointing import Evaluation, EveryEpochs, KeptCheckpoints
from src.errors import UserError
from src.train_step import get_loss_scaler


class Output(float):
    def asnumpy(self):
        return np.float32(self)


def context_of(loss, stopped=None):
    outputs = (Output(loss), Output(1.0 if math.isfinite(loss) else math.inf))
    return SimpleNamespace(
        original_args=lambda: SimpleNamespace(net_outputs=outputs), request_stop=lambda: stopped.append(True)
    )


def drive(tmp_path, caplog, *, steps, steps_per_epoch, every=0, log_every=1, accuracies=None, losses=None):
    """Call the callbacks as `Model.train` does; returns them, the saved files and the log lines."""
    caplog.set_level(logging.INFO, logger="src.callback")
    saved, scores, clock = [], iter(accuracies or []), Stopwatch()
    evaluation = Evaluation(
        evaluate=(lambda: {"top1": next(scores), "top5": None, "samples": 9}) if accuracies else None,
        save=lambda path, step, result: saved.append((path.name, step, result and result["top1"])),
        folder=tmp_path,
        due=lambda step: every > 0 and step % every == 0,
        total_steps=steps,
        clock=clock,
    )
    lr = np.linspace(0.1, 0.1 * steps, steps)
    recorder = LossRecorder(lr)
    monitor = StateMonitor(
        losses=recorder,
        evaluation=evaluation,
        clock=clock,
        total_steps=steps,
        batch_size=8,
        steps_per_epoch=steps_per_epoch,
        log_every=log_every,
    )
    stopped = []
    monitor.on_train_begin(None)
    for step in range(steps):
        loss = losses[step] if losses else step + 1.0
        context = context_of(loss, stopped)
        for callback in (recorder, evaluation, monitor):
            callback.on_train_step_end(context)
    monitor.on_train_end(None)
    assert stopped == [True]
    lines = [record.getMessage() for record in caplog.records]
    return evaluation, saved, [line for line in lines if not line.startswith(("compiling", "about"))]


def test_the_lines_have_the_form_that_users_grep(tmp_path, caplog):
    _, _, lines = drive(
        tmp_path, caplog, steps=4, steps_per_epoch=2, every=2, log_every=2, accuracies=[0.25, 0.5]
    )
    number = r"\d+\.\d\d"

    def epoch(index, loss, lr, accuracy):
        return (
            rf"epoch\[{index}\], epoch time: {number}s, per step time: \d+\.\d\d\d\ds, "
            rf"loss={loss:.6f}, lr={lr:.6f}, fps={number}, accuracy={accuracy:.6f}, eval_cost={number}"
        )

    expected = [
        rf"compile time used={number}s",
        epoch(0, 1.5, 0.2, 0.25),
        epoch(1, 3.5, 0.4, 0.5),
        rf"training time used={number}s",
        r"last_metric\[0\.50000\]",
        rf"ip\[[\d.]+\], mean_fps\[{number}\]",
    ]
    assert len(lines) == len(expected)
    for text, pattern in zip(lines, expected):
        assert re.fullmatch(pattern, text), text


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
    tmp_path, caplog, steps, steps_per_epoch, log_every, expected
):
    _, _, lines = drive(tmp_path, caplog, steps=steps, steps_per_epoch=steps_per_epoch, log_every=log_every)
    assert [line.split(",")[0] for line in lines[1:-2]] == expected


def test_the_last_and_the_best_checkpoint_are_saved(tmp_path, caplog):
    evaluation, saved, _ = drive(
        tmp_path, caplog, steps=7, steps_per_epoch=7, every=3, accuracies=[0.5, 0.75, 0.25]
    )
    assert saved == [
        *[("last.ckpt", 3, 0.5), ("best.ckpt", 3, 0.5)],
        *[("last.ckpt", 6, 0.75), ("best.ckpt", 6, 0.75)],
        ("last.ckpt", 7, 0.25),
    ]
    assert evaluation.best == {"top1": 0.75, "top5": None, "samples": 9, "step": 6}
    assert evaluation.result["top1"] == 0.25


def test_a_run_without_evaluation_still_saves_its_last_step(tmp_path, caplog):
    _, saved, lines = drive(tmp_path, caplog, steps=3, steps_per_epoch=2)
    assert saved == [("last.ckpt", 3, None)]
    assert not [line for line in lines if "accuracy" in line or "last_metric" in line]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_step_is_told_and_left_out_of_the_mean(tmp_path, caplog, bad):
    _, _, lines = drive(tmp_path, caplog, steps=3, steps_per_epoch=3, losses=[1.0, bad, 4.0], log_every=3)
    assert any("step 2 is left out" in line for line in lines)
    assert [line for line in lines if "loss=2.500000" in line]


def test_bad_steps_in_a_row_stop_the_run(tmp_path):
    recorder = LossRecorder(np.full(99, 0.2), SimpleNamespace(scale_value=Output(64.0)))
    losses = [math.nan] * (MAX_BAD_STEPS - 1) + [1.0] + [math.nan] * (MAX_BAD_STEPS - 1)
    for loss in losses:
        recorder.on_train_step_end(context_of(loss))
    with pytest.raises(UserError, match=r"10 steps in a row, up to step 20 of 99, .*\(learning rate 0\.2\)"):
        recorder.on_train_step_end(context_of(math.nan))


def test_overflows_under_a_dynamic_scale_are_no_bad_steps():
    recorder = LossRecorder(np.full(99, 0.2), get_loss_scaler("dynamic", 2.0**20))
    outputs = (Output(1.5), Output(math.inf))
    context = SimpleNamespace(original_args=lambda: SimpleNamespace(net_outputs=outputs))
    for _ in range(3 * MAX_BAD_STEPS):
        recorder.on_train_step_end(context)
    assert recorder.bad == 0
    recorder.on_train_step_end(context_of(math.nan))
    recorder.scaler = get_loss_scaler("dynamic", 1.0)  # as low as it goes
    recorder.on_train_step_end(context)
    assert recorder.bad == 2


def test_checkpoints_of_epochs_come_and_the_oldest_go(tmp_path):
    def save(path, step, result):
        path.write_text(str(step))

    keep = KeptCheckpoints(save=save, folder=tmp_path, prefix="vit", steps_per_epoch=3, keep_max=2)
    callback = EveryEpochs(keep, epochs=2, steps_per_epoch=3, clock=Stopwatch())
    for step in range(1, 26):
        callback.on_train_step_end(None)
        if step == 13:
            assert sorted(p.name for p in tmp_path.iterdir()) == ["vit-2_3.ckpt", "vit-4_3.ckpt"]
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"vit-6_3.ckpt": "18", "vit-8_3.ckpt": "24"}


def test_the_clock_of_training_stands_still_during_evaluations_and_epoch_actions(monkeypatch, tmp_path):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def take(seconds, answer=None):
        now[0] += seconds
        return answer

    clock = Stopwatch()
    evaluation = Evaluation(
        evaluate=lambda: take(7.0, {"top1": 0.5, "top5": None, "samples": 1}),
        save=lambda *_: take(2.0),
        folder=tmp_path,
        due=lambda step: True,
        total_steps=5,
        clock=clock,
    )
    action = EveryEpochs(lambda epoch: take(30.0), epochs=1, steps_per_epoch=1, clock=clock)
    start = clock.time()
    take(1.0)
    for callback in (evaluation, action):
        callback.on_train_step_end(None)
    assert clock.time() - start == 1.0
    assert evaluation.cost == 7.0
    assert now[0] == 100.0 + 1 + 7 + 2 + 2 + 30  # last.ckpt and best.ckpt


def test_a_step_that_was_left_out_does_not_advance_the_rate():
    recorder = LossRecorder([0.1, 0.2, 0.3])
    rates = []
    for loss in (1.0, math.nan, math.nan, 1.0, 1.0):
        recorder.on_train_step_end(context_of(loss))
        rates.append(recorder.rate)
    assert rates == [0.1, 0.2, 0.2, 0.2, 0.3]
    assert recorder.applied == 3
