import time

import numpy as np
import pytest
from driven import run_steps

from src.callback import LossRecorder, Stopwatch
from src.checkpointing import Checkpoints, Evaluation, EveryEpochs
from src.errors import UserError
from src.progress import Progress


class Ending:
    """Ends the run after the last step, or when it is to stop; `StateMonitor` does it."""

    def __init__(self, progress, steps):
        self.progress = progress
        self.steps = steps

    def on_train_begin(self, run_context):
        pass

    on_train_step_begin = on_train_end = on_train_begin

    def on_train_step_end(self, run_context):
        if self.progress.step == self.steps or self.progress.stopping:
            run_context.request_stop()


@pytest.fixture
def drive(tmp_path):
    """Run steps; returns (file, step, whole) of all that was saved, and the progress."""

    def run(*, total, every=0, scores=None, progress=None, save=None, before=None, **keys):
        progress = Progress() if progress is None else progress
        saved, scores, clock = [], None if scores is None else iter(scores), Stopwatch()

        def note(path, whole):
            saved.append((path.name, progress.step, whole))
            path.write_text(f"{progress.step}")

        def evaluate():
            score = next(scores)
            return None if score is None else {"top1": score, "top5": None, "samples": 9}

        losses = LossRecorder(progress, np.ones(total))
        evaluation = Evaluation(
            progress,
            evaluate=None if scores is None else evaluate,
            due=lambda step: every > 0 and step % every == 0,
            total_steps=total,
            clock=clock,
        )
        defaults = {"epochs": None, "steps": None, "keep_max": 2, "minutes": 99, "steps_per_epoch": 3}
        checkpoints = Checkpoints(
            progress,
            save=save or note,
            evaluation=evaluation,
            folder=tmp_path,
            network="vit",
            suffix=".ckpt",
            total_steps=total,
            clock=clock,
            **{**defaults, **keys},
        )
        callbacks = [losses, *([before] if before else []), evaluation, checkpoints, Ending(progress, total)]
        run_steps(callbacks, [1.0] * 99)
        return saved, progress

    return run


def test_the_best_weights_and_then_the_last_state_are_saved(drive):
    saved, progress = drive(total=7, every=3, scores=[0.5, 0.75, 0.25])
    assert saved == [
        *[("best.ckpt", 3, False), ("last.ckpt", 3, True)],
        *[("best.ckpt", 6, False), ("last.ckpt", 6, True)],
        ("last.ckpt", 7, True),
    ]
    assert progress.best == {"top1": 0.75, "top5": None, "samples": 9, "step": 6}
    assert progress.result["top1"] == 0.25


def test_a_run_without_evaluation_still_saves_when_one_would_be_due_and_at_the_end(drive):
    saved, progress = drive(total=5, every=2)
    assert saved == [("last.ckpt", 2, True), ("last.ckpt", 4, True), ("last.ckpt", 5, True)]
    assert progress.best is None


def test_checkpoints_of_epochs_and_of_steps_are_kept_and_the_oldest_go(drive, tmp_path):
    saved, _ = drive(total=14, epochs=2, steps=5)
    kept = [("vit-2_2", 5), ("vit-2_3", 6), ("vit-4_1", 10), ("vit-4_3", 12)]
    assert [entry for entry in saved if entry[0] != "last.ckpt"] == [(f"{n}.ckpt", s, True) for n, s in kept]
    files = {path.name: path.read_text() for path in tmp_path.glob("vit*")}
    assert files == {"vit-4_1.ckpt": "10", "vit-4_3.ckpt": "12"}


def test_a_resumed_run_goes_on_removing_the_oldest(drive, tmp_path):
    for name in ("vit-1_3.ckpt", "vit-2_2.ckpt", "vit-3_1.ckpt", "vit-1_3.safetensors", "vit-x.ckpt"):
        (tmp_path / name).write_text("old")
    drive(total=8, steps=6, progress=Progress(step=5, applied=5))
    assert sorted(p.name for p in tmp_path.glob("vit*")) == [
        *("vit-2_2.ckpt", "vit-2_3.ckpt"),
        *("vit-3_1.ckpt", "vit-x.ckpt"),  # the run has yet to come to the one and does not know the other
    ]


def test_the_last_checkpoint_is_never_older_than_was_asked_for(drive, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Minute(Ending):
        def on_train_step_end(self, run_context):
            now[0] += 60.0

    saved, _ = drive(total=8, minutes=2.5, before=Minute(None, None))
    assert [step for _, step, _ in saved] == [3, 6, 8]


class StopAt(Ending):
    def on_train_step_end(self, run_context):
        self.progress.stopping = self.progress.step == self.steps


def test_a_stop_saves_and_leaves_an_evaluation_that_is_due_for_the_next_start(drive):
    progress = Progress()
    saved, _ = drive(total=9, every=2, scores=[0.5], progress=progress, before=StopAt(progress, 4))
    assert saved == [("best.ckpt", 2, False), ("last.ckpt", 2, True), ("last.ckpt", 4, True)]
    assert progress.pending
    assert progress.result["top1"] == 0.5

    progress.stopping = False
    saved, _ = drive(total=5, scores=[0.75, 0.625], progress=progress)
    assert saved == [("best.ckpt", 4, False), ("last.ckpt", 4, True), ("last.ckpt", 5, True)]
    assert not progress.pending


def test_an_evaluation_that_is_given_up_stops_the_run(drive):
    saved, progress = drive(total=9, every=2, scores=[0.5, None])
    assert saved[-1] == ("last.ckpt", 4, True)
    assert progress.step == 4
    assert progress.pending


def test_a_full_disk_does_not_end_a_run_before_its_last_step(drive, caplog):
    written = []

    def save(path, whole):
        written.append(path.name)
        raise UserError("cannot write: No space left on device")

    with pytest.raises(UserError, match="No space left"):
        drive(total=5, every=2, save=save)
    assert written == ["last.ckpt"] * 3
    assert sum("the run goes on and tries again" in record.getMessage() for record in caplog.records) == 2


def test_a_write_that_fails_removes_nothing_and_the_best_is_what_the_file_holds(drive, tmp_path):
    class Full:
        """The disk is full at step 4."""

        def __init__(self):
            self.progress, self.saved = Progress(), []

        def __call__(self, path, whole):
            if self.progress.step == 4:
                raise UserError("cannot write: No space left on device")
            path.write_text(f"{self.progress.step}")

    full = Full()
    drive(
        total=7, every=2, scores=[0.5, 0.9, 0.7, 0.1], steps=2, keep_max=1, save=full, progress=full.progress
    )
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert files == {"best.ckpt": "6", "last.ckpt": "7", "vit-2_3.ckpt": "6"}
    assert full.progress.best["top1"] == 0.7


def test_the_clock_of_training_stands_still_during_evaluations_checkpoints_and_actions(monkeypatch, tmp_path):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def take(seconds, answer=None):
        now[0] += seconds
        return answer

    clock, progress = Stopwatch(), Progress(step=1)
    of_run = {"total_steps": 5, "clock": clock}
    evaluation = Evaluation(
        progress,
        evaluate=lambda: take(7.0, {"top1": 0.5, "top5": None, "samples": 1}),
        due=lambda step: True,
        **of_run,
    )
    checkpoints = Checkpoints(
        progress,
        save=lambda *_: take(2.0),
        evaluation=evaluation,
        folder=tmp_path,
        network="vit",
        suffix=".ckpt",
        steps_per_epoch=1,
        epochs=1,
        steps=None,
        keep_max=1,
        minutes=1,
        **of_run,
    )
    action = EveryEpochs(progress, lambda: take(30.0), epochs=1, steps_per_epoch=1, clock=clock)
    start = clock.time()
    take(1.0)
    for callback in (evaluation, checkpoints, action):
        callback.on_train_step_end(None)
    assert clock.time() - start == 1.0
    assert evaluation.cost == 7.0
    assert now[0] == 100.0 + 1 + 7 + 3 * 2 + 30  # best, kept and last


def test_an_action_of_epochs_is_called_at_their_ends():
    progress, calls = Progress(), []
    action = EveryEpochs(
        progress, lambda: calls.append(progress.step), epochs=2, steps_per_epoch=3, clock=Stopwatch()
    )
    for progress.step in range(1, 20):
        action.on_train_step_end(None)
    assert calls == [6, 12, 18]
