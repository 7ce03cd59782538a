"""Learning-rate schedules as plain arrays: one float32 rate an optimizer step. No MindSpore here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Callable, NamedTuple

import numpy as np

from src.errors import UserError

MAX_STEPS = 100_000_000  # of a run; the rate of each is kept


class _Run(NamedTuple):
    """The arguments of `get_lr`, with whole steps for epochs."""

    total: int
    warmup: int
    decays: list[int]
    lr_max: float
    lr_init: float
    lr_min: float
    decay_rate: float
    power: float


def get_lr(
    mode: str,
    *,
    lr_max: float,
    max_epoch: float,
    steps_per_epoch: float,
    lr_init: float = 0.0,
    lr_min: float = 0.0,
    warmup_epochs: float = 0.0,
    decay_epochs: Sequence[float] = (),
    decay_rate: float = 0.1,
    power: float = 2.0,
) -> np.ndarray:
    """Return the rate of each optimizer step of a run.

    The warm-up rises linearly from `lr_init`; the last of its W steps, number W - 1, has `lr_max`. Then
    `cosine`, `poly` and `linear` fall to `lr_min`, which the last step of the run has exactly. `steps`
    multiplies `lr_max` by `decay_rate` after each of `decay_epochs`, with `lr_min` as the floor.
    `bit_staircase` is the function of that name, with its own warm-up; its decay steps are `decay_epochs`.

    Args:
        mode: a name in `MODES`.
        lr_max: the rate after the warm-up.
        max_epoch: length of the run. Epochs may be fractions; they are rounded to whole steps.
        steps_per_epoch: optimizer steps in an epoch; 1 when all the epochs here are steps.
        lr_init: where the warm-up starts from.
        lr_min: the lowest rate after the warm-up.
        warmup_epochs: length of the warm-up, at most that of the run.
        decay_epochs: when `steps` and `bit_staircase` decay, counted from the start of the run.
        decay_rate: factor of each decay of `steps`.
        power: exponent of `poly`.

    Returns:
        float32 array of round(max_epoch * steps_per_epoch) rates.

    Raises:
        UserError: an unknown mode, or numbers that make no schedule.
    """
    if mode not in MODES:
        raise UserError(f"lr_decay_mode wants one of {', '.join(MODES)} and got {mode!r}")
    if not (0 < max_epoch < math.inf and 0 < steps_per_epoch < math.inf):
        raise UserError(
            f"max_epoch and steps_per_epoch must be positive, not {max_epoch} and {steps_per_epoch}"
        )
    total, warmup, *decays = (round(e * steps_per_epoch) for e in (max_epoch, warmup_epochs, *decay_epochs))
    if total < 1:
        raise UserError(
            f"max_epoch {max_epoch} is less than one step of {steps_per_epoch} an epoch; raise it"
        )
    if not 0 <= warmup <= total:
        raise UserError(f"warmup_epochs must be between 0 and max_epoch, {max_epoch}, not {warmup_epochs}")
    if total > MAX_STEPS:
        raise UserError(
            f"the run would have {total:,} steps, and the limit is {MAX_STEPS:,}; lower max_epoch"
        )
    if max(lr_min, lr_init) > lr_max:
        name = "lr_min" if lr_min > lr_max else "lr_init"
        raise UserError(f"{name} must not be above lr_max, {lr_max}, and is {max(lr_min, lr_init)}")
    if any(not 0 < step < total for step in decays):
        raise UserError(f"decay_epochs must lie inside the run of {max_epoch}, not {list(decay_epochs)}")
    if power <= 0 or not 0 < decay_rate <= 1:
        raise UserError(
            f"poly_power must be above 0, decay_rate above 0 and at most 1, not {power} and {decay_rate}"
        )
    run = _Run(total, warmup, decays, lr_max, lr_init, lr_min, decay_rate, power)
    return MODES[mode](run).astype(np.float32)


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


def _bit_staircase(run: _Run) -> np.ndarray:
    if (run.lr_init, run.lr_min, run.decay_rate) != (0.0, 0.0, 0.1):
        raise UserError(
            f"bit_staircase has lr_init 0, lr_min 0 and decay_rate 0.1, not {run.lr_init}, {run.lr_min} and "
            f"{run.decay_rate}; leave them out, or use steps"
        )
    return bit_staircase(run.lr_max, [run.warmup, *run.decays, run.total])


def _warmed_up(mode: Callable[[_Run, np.ndarray], np.ndarray], run: _Run) -> np.ndarray:
    """The warm-up, then `mode` of t: how much of the rest is over after each step, in (0, 1]."""
    ramp = run.lr_init + (run.lr_max - run.lr_init) * np.arange(1, run.warmup + 1) / max(run.warmup, 1)
    rest = run.total - run.warmup
    return np.concatenate([ramp, mode(run, np.arange(1, rest + 1) / max(rest, 1))])


def _cosine(run: _Run, t: np.ndarray) -> np.ndarray:
    return run.lr_min + (run.lr_max - run.lr_min) / 2 * (1 + np.cos(np.pi * t))


def _poly(run: _Run, t: np.ndarray) -> np.ndarray:
    return run.lr_min + (run.lr_max - run.lr_min) * (1 - t) ** run.power


def _linear(run: _Run, t: np.ndarray) -> np.ndarray:
    return run.lr_min + (run.lr_max - run.lr_min) * (1 - t)


def _steps(run: _Run, t: np.ndarray) -> np.ndarray:
    decays = np.searchsorted(np.sort(run.decays), np.arange(run.total - len(t), run.total), side="right")
    return np.maximum(run.lr_max * run.decay_rate**decays, run.lr_min)


MODES: dict[str, Callable[[_Run], np.ndarray]] = {
    "cosine": partial(_warmed_up, _cosine),
    "poly": partial(_warmed_up, _poly),
    "steps": partial(_warmed_up, _steps),
    "linear": partial(_warmed_up, _linear),
    "bit_staircase": _bit_staircase,
}
