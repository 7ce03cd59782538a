"""Learning-rate schedules as plain arrays: one float32 rate an optimizer step. No MindSpore here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from src.errors import UserError


def bit_staircase(lr_max: float, steps: Sequence[int]) -> np.ndarray:
    """BiT's schedule (google-research/big_transfer `bit_hyperrule.py: get_lr`).

    The rate rises linearly from 0 at step 0 to `lr_max` at step `steps[0]`, and is divided by ten in the step
    after each of `steps[1:-1]`. The run ends before step `steps[-1]`.

    Args:
        lr_max: the rate after the warm-up.
        steps: warm-up end, decay steps, end; strictly increasing, a warm-up end of 0 means none.

    Returns:
        float32 array of `steps[-1]` rates.
    """
    if len(steps) < 2 or steps[0] < 0 or any(b <= a for a, b in zip(steps, steps[1:])):
        raise UserError(
            f"schedule_steps wants a warm-up end >= 0, any decay steps and the end, strictly increasing, "
            f"and got {list(steps)}"
        )
    step = np.arange(steps[-1])
    decays = np.searchsorted(np.asarray(steps[1:-1]), step, side="left")
    rate = lr_max * 0.1**decays
    warmup = steps[0]
    rate[:warmup] = lr_max * step[:warmup] / max(warmup, 1)
    return rate.astype(np.float32)
