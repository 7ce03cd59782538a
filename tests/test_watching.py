import csv
import io
import sys

import numpy as np
import pytest
from driven import run_steps

from src.callback import LossRecorder, Stopwatch
from src.checkpointing import Evaluation
from src.logging import get_logger
from src.progress import Progress
from src.watching import Metrics, ProgressBar


@pytest.fixture
def drive(tmp_path):
    """Run steps with `Metrics` and more callbacks; returns the rows of the file."""

    def run(losses, *, progress=None, scores=(), more=lambda *_: [], tensorboard=False):
        progress, clock = progress or Progress(), Stopwatch()
        recorder = LossRecorder(progress, np.linspace(0.1, 1.0, 10))
        numbers = iter(scores)
        evaluation = Evaluation(
            progress,
            evaluate=(lambda: {"top1": next(numbers), "top5": 0.5, "samples": 4}) if scores else None,
            due=lambda step: step % 2 == 0,
            total_steps=10,
            clock=clock,
        )
        metrics = Metrics(
            progress,
            losses=recorder,
            evaluation=evaluation,
            clock=clock,
            folder=tmp_path,
            before=tmp_path if progress.step else None,
            title="a run",
            batch_size=8,
            steps_per_epoch=3,
            tensorboard=tensorboard,
            log_every=2,
        )
        run_steps([recorder, evaluation, metrics, *more(progress, recorder, clock)], losses)
        metrics.close()
        return list(csv.DictReader((tmp_path / "metrics.csv").open()))

    return run


def test_rows_hold_loss_rate_speed_and_evaluations(drive, tmp_path):
    rows = drive([3.0, 2.0, 1.0, 0.5], scores=[0.25, 0.75])
    assert [row["loss"] for row in rows] == ["3", "2", "1", "0.5"]
    assert [row["learning_rate"] for row in rows] == ["0.1", "0.2", "0.3", "0.4"]
    assert [row["epoch"] for row in rows] == ["0", "0", "0", "1"]
    assert [row["top1"] for row in rows] == ["", "0.25", "", "0.75"]
    assert rows[0]["images_per_second"] == ""  # compilation
    assert all(float(row["images_per_second"]) > 0 for row in rows[1:])
    assert all(0 <= float(row["data_wait"]) <= 1 for row in rows[1:])
    assert (tmp_path / "curves.png").exists()


def test_an_evaluation_that_was_made_up_for_comes_into_the_row_of_its_step(drive):
    drive([3.0, 2.0], scores=[0.25])
    rows = drive([1.0], scores=[0.5], progress=Progress(step=2, applied=2, pending=True))
    assert [(row["step"], row["loss"], row["top1"]) for row in rows] == [
        *(("1", "3", ""), ("2", "2", "0.5"), ("3", "1", "")),
    ]


def test_tensorboard_gets_the_same_numbers(drive, tmp_path):
    tensorboard = pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    assert tensorboard
    drive([3.0, 2.0, 1.0, 0.5], scores=[0.25, 0.5], tensorboard=True)
    (path,) = (tmp_path / "tensorboard").iterdir()
    data, found = path.read_bytes(), {}
    while data:  # length, its checksum, the event, its checksum
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        data = data[16 + size :]
        found.update({(value.tag, event.step): value.simple_value for value in event.summary.value})
    assert {step for _, step in found} == {2, 4}
    assert (found["loss", 2], found["loss", 4]) == (2.0, 0.5)
    assert (found["top1", 2], found["top1", 4]) == (0.25, 0.5)


def test_the_bar_counts_on_and_log_lines_stay_whole_above_it(drive, tmp_path, monkeypatch, capsys):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    logger = get_logger(tmp_path)

    class Talks(ProgressBar):
        def on_train_step_end(self, run_context):
            super().on_train_step_end(run_context)
            logger.info("a line")

        def on_train_end(self, run_context):
            self.bar.refresh()
            self.shows.close()

    def bar(progress, recorder, clock):
        import contextlib

        made = Talks(progress, losses=recorder, clock=clock, total_steps=10, batch_size=8)
        made.shows = contextlib.ExitStack()
        made.shows.enter_context(made.shown())
        return [made]

    drive([3.0, 2.0, 1.0], progress=Progress(step=4, applied=4), more=bar)
    assert "7/10" in screen.getvalue()
    assert "loss 2.0000" in screen.getvalue()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.endswith(":INFO:a line") for line in lines) == 3
    assert "7/10" not in (tmp_path / "train.log").read_text()
    assert (tmp_path / "train.log").read_text().count("a line") == 3
