"""The end of a run before its time: by a signal, or at a limit."""

from __future__ import annotations

import signal
import time
from typing import Callable

from mindspore.train import Callback

from src.progress import Progress
from src.signals import StopSignals


class EarlyStop(Callback):
    """Ends the run after a step, on all ranks the same: at a signal, or at a limit.

    Args:
        progress (Progress): `stopping` is set.
        ask (Callable): () -> None, `TrainStep.ask_to_stop`: the next step tells the other ranks.
        signals (StopSignals): what came so far.
        device_num (int): number of ranks.
        max_steps (int): stop after this step; None: no limit.
        max_minutes (float): stop so long after `begun`; None: no limit.
        begun (float): of `time.monotonic`.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        ask: Callable[[], None],
        signals: StopSignals,
        device_num: int = 1,
        max_steps: int | None = None,
        max_minutes: float | None = None,
        begun: float = 0.0,
    ):
        super().__init__()
        self.progress = progress
        self.ask = ask
        self.signals = signals
        self.device_num = device_num
        self.max_steps = max_steps
        self.max_minutes = max_minutes
        self.begun = begun
        self.asked = False

    @property
    def reason(self) -> str:
        """What this rank knows of the reason."""
        if self.signals.signum:
            return signal.Signals(self.signals.signum).name
        if self.max_steps is not None and self.progress.step >= self.max_steps:
            return f"max_steps {self.max_steps}"
        return f"max_minutes {self.max_minutes:g}" if self._late() else "another rank was told to"

    def is_asked(self) -> bool:
        """Whether this rank wants the end."""
        return bool(self.signals.signum) or self._late()

    def _late(self) -> bool:
        return self.max_minutes is not None and time.monotonic() - self.begun > 60 * self.max_minutes

    def on_train_step_end(self, run_context):
        """Set `stopping` when all ranks know."""
        if not self.asked and self.is_asked():
            self.asked = True
            self.ask()
            self.progress.stopping |= self.device_num == 1
        if self.device_num > 1 and float(run_context.original_args().net_outputs[2].asnumpy()) > 0:
            self.progress.stopping = True
        if self.max_steps is not None and self.progress.step >= self.max_steps:
            self.progress.stopping = True
