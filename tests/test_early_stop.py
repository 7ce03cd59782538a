import signal
import time

import pytest
from driven import context_of

from src.early_stop import EarlyStop
from src.progress import Progress
from src.signals import StopSignals


@pytest.fixture
def stop():
    def build(**keys):
        return EarlyStop(Progress(), ask=lambda: build.asked.append(True), signals=StopSignals(), **keys)

    build.asked = []
    return build


def test_a_signal_stops_one_device_after_the_step(stop):
    early = stop()
    early.on_train_step_end(context_of(1.0))
    assert not early.progress.stopping
    early.signals.signum = signal.SIGTERM
    early.on_train_step_end(context_of(1.0))
    assert early.progress.stopping
    assert early.reason == "SIGTERM"


def test_several_ranks_stop_when_a_step_has_told_them_all(stop):
    early = stop(device_num=2)
    early.signals.signum = signal.SIGINT
    early.on_train_step_end(context_of(1.0))
    early.on_train_step_end(context_of(1.0))
    assert stop.asked == [True]
    assert not early.progress.stopping
    early.on_train_step_end(context_of(1.0, asked=1))
    assert early.progress.stopping

    other = stop(device_num=2)
    other.on_train_step_end(context_of(1.0, asked=1))
    assert other.progress.stopping
    assert other.reason == "another rank was told to"


def test_max_steps_counts_from_the_beginning_of_the_run(stop):
    early = stop(max_steps=7, device_num=3)
    for early.progress.step in (5, 6):
        early.on_train_step_end(context_of(1.0))
    assert not early.progress.stopping
    early.progress.step = 7
    early.on_train_step_end(context_of(1.0))
    assert early.progress.stopping
    assert early.reason == "max_steps 7"
    assert not stop.asked


def test_max_minutes_counts_from_this_start(stop, monkeypatch):
    now = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    early = stop(max_minutes=1.5, begun=50.0)
    now[0] += 89.0
    early.on_train_step_end(context_of(1.0))
    assert not early.progress.stopping
    now[0] += 2.0
    early.on_train_step_end(context_of(1.0))
    assert early.progress.stopping
    assert early.reason == "max_minutes 1.5"
