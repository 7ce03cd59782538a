"""Where a step spends its time: MindSpore's profiler over a few steps of a run."""

from __future__ import annotations

import logging
from pathlib import Path

from mindspore import profiler
from mindspore.train import Callback

log = logging.getLogger(__name__)

FIRST, COUNT = 3, 3  # the steps that are recorded; compilation is over by then


class Profiling(Callback):
    """Records steps 3 to 5 into `folder`, for MindStudio Insight; `trace_view.json` opens in Perfetto, too.

    Args:
        folder (Path): where the profile goes.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder
        self.step = 0
        self.profile = None

    def on_train_begin(self, run_context):
        """Set up the profiler, which waits for its steps."""
        self.profile = profiler.profile(
            activities=None,  # all that the device has
            schedule=profiler.schedule(wait=0, warmup=1, active=COUNT, repeat=1, skip_first=FIRST - 2),
            on_trace_ready=profiler.tensorboard_trace_handler(str(self.folder)),
        )

    def on_train_step_end(self, run_context):
        """Tell the profiler that a step is over."""
        self.profile.step()

    def on_train_end(self, run_context):
        """Write what was recorded."""
        self.profile.stop()
        log.info("profile of steps %d to %d: %s", FIRST, FIRST + COUNT - 1, self.folder)
