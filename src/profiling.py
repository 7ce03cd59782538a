"""Where a step spends its time: MindSpore's profiler over a few steps of a run."""

from __future__ import annotations

import logging
from pathlib import Path

from mindspore import profiler
from mindspore.train import Callback

from src.callback import Stopwatch
from src.errors import UserError

log = logging.getLogger(__name__)

FIRST, LAST = 3, 5  # the steps that are recorded; compilation is over by then


def check_steps(steps: int) -> None:
    """Raise `UserError` when so few steps of a run are left that none could be recorded."""
    if steps < LAST:
        raise UserError(f"open_profiler records steps {FIRST} to {LAST}, and the run has {steps}")


class Profiling(Callback):
    """Records steps 3 to 5 into its `folder`, for MindStudio Insight or (`trace_view.json`) Perfetto.

    Stands before the callbacks that evaluate, so that their work is not in the profile.

    Args:
        folder (Path): gets the profile.
        clock (Stopwatch): stands still while the profile is written.
    """

    def __init__(self, folder: Path, *, clock: Stopwatch):
        super().__init__()
        self.folder = folder
        self.clock = clock
        self.step = 0
        self.profile = None

    def on_train_begin(self, run_context):
        """Set up the profiler, which waits for its steps."""
        self.profile = profiler.profile(
            activities=None,  # all that the device has
            schedule=profiler.schedule(
                wait=0, warmup=1, active=LAST - FIRST + 1, repeat=1, skip_first=FIRST - 2
            ),
            on_trace_ready=profiler.tensorboard_trace_handler(str(self.folder)),
        )

    def on_train_step_end(self, run_context):
        """Tell the profiler that a step is over; write what was recorded after the last of them."""
        if self.profile is None:
            return
        self.step += 1
        with self.clock.paused():
            self.profile.step()
            if self.step == LAST:
                self.close()
                log.info("profile of steps %d to %d: %s", FIRST, LAST, self.folder)

    def close(self) -> None:
        """Stop the profiler, also when the run did not come that far."""
        if self.profile is not None:
            self.profile.stop()
            self.profile = None
