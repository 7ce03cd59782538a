import pytest

from src.callback import Stopwatch
from src.errors import UserError
from src.profiling import Profiling, check_steps


class Recorder:
    def __init__(self):
        self.calls = []

    def profile(self, **_):
        return self

    def schedule(self, **arguments):
        self.calls.append(arguments)

    def tensorboard_trace_handler(self, folder):
        self.calls.append(folder)

    def step(self):
        self.calls.append("step")

    def stop(self):
        self.calls.append("stop")


@pytest.fixture
def recorder(monkeypatch):
    found = Recorder()
    monkeypatch.setattr("src.profiling.profiler", found)
    return found


def test_steps_three_to_five_are_recorded_and_then_no_more(recorder, tmp_path):
    profiling = Profiling(tmp_path, clock=Stopwatch())
    profiling.on_train_begin(None)
    assert recorder.calls == [
        {"wait": 0, "warmup": 1, "active": 3, "repeat": 1, "skip_first": 1},
        str(tmp_path),
    ]
    for _ in range(9):
        profiling.on_train_step_end(None)
    profiling.close()
    assert recorder.calls[2:] == ["step"] * 5 + ["stop"]


def test_a_run_that_fails_stops_the_profiler(recorder, tmp_path):
    profiling = Profiling(tmp_path, clock=Stopwatch())
    profiling.close()  # before it began
    profiling.on_train_begin(None)
    profiling.on_train_step_end(None)
    profiling.close()
    assert recorder.calls[-1] == "stop"


def test_a_run_that_is_too_short_is_refused():
    with pytest.raises(UserError, match="records steps 3 to 5, and the run has 4"):
        check_steps(4)
    check_steps(5)
