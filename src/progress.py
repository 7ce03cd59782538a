"""How far a training run has come: what its callbacks share, and what a checkpoint keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields


@dataclass
class Progress:
    """Counts from the beginning of the run, whatever interrupted it.

    Attributes:
        step: batches seen; the next batch is number `step` of the stream, from 0.
        applied: steps that updated the weights: where the schedule stands.
        bad: newest steps in a row that did not, because of numbers that are not finite.
        result: the newest evaluation, `{"top1", "top5", "samples"}`.
        best: that of the best top-1, with its `step`.
        pending: the evaluation after `step` is due and was not made.
        stopping: the run ends after this step, before its time; not kept.
    """

    step: int = 0
    applied: int = 0
    bad: int = 0
    result: dict | None = None
    best: dict | None = None
    pending: bool = False
    stopping: bool = False

    def as_record(self) -> dict:
        """What a checkpoint keeps."""
        return {key: value for key, value in asdict(self).items() if key != "stopping"}

    @classmethod
    def from_record(cls, record: Mapping) -> Progress:
        """Read what a checkpoint kept.

        Raises:
            ValueError: it is not what `as_record` gives.
        """
        progress = cls(**{f.name: record[f.name] for f in fields(cls) if f.name != "stopping"})
        counts = (progress.step, progress.applied, progress.bad)
        if any(type(count) is not int or not 0 <= count <= progress.step for count in counts):
            raise ValueError(f"the counts of steps are {counts}")
        if type(progress.pending) is not bool:
            raise ValueError(f"pending is {progress.pending!r}")
        for result, keys in ((progress.result, ("top1",)), (progress.best, ("top1", "step"))):
            if result is not None and not all(isinstance(result[key], (int, float)) for key in keys):
                raise ValueError(f"an evaluation is {result!r}")
        return progress
