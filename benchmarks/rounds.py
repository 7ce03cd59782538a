"""Worker processes that are timed in turn, and what becomes of their times."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class WorkerError(Exception):
    """A worker ended early; the text is its last words."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        part: what was measured, such as `train`.
        case: of what, such as `bit_r50x1, batch 8`.
        unit: of the numbers; in `images/s` more is better, in all others less.
        ours: of each repetition.
        theirs: of each repetition of the other side; empty without one.
        target: the ratio, or with `limit` our own number, that is aimed at; None for none.
        limit: whether `target` is an upper bound of our median.
    """

    part: str
    case: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float] = ()
    target: float | None = None
    limit: bool = False

    def ratio(self, of=statistics.median) -> float | None:
        """How many times better we are, by the medians or another figure; None without another side."""
        if not self.theirs:
            return None
        ours, theirs = of(self.ours), of(self.theirs)
        return ours / theirs if self.unit == "images/s" else theirs / ours

    def best_ratio(self) -> float | None:
        """The same by the best repetition of each side."""
        return self.ratio(max if self.unit == "images/s" else min)


class Worker:
    """A process that is ready when it has warmed up, and then works only when it is told to."""

    def __init__(self, python: str, module: str, case: dict):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, it lives as long as the worker
        self._process = subprocess.Popen(
            [python, "-m", module, json.dumps(case)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=env,
            cwd=ROOT,
        )
        self._read()

    def times(self, count: int) -> list[float]:
        """Let it work `count` times; one number each."""
        return self._ask(count)

    def peak_memory(self) -> float:
        """Bytes at most so far."""
        return self._ask(0)[0]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_) -> None:
        """Let it end, at once after an error."""
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _ask(self, count: int) -> list[float]:
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> list[float]:
        for line in self._process.stdout:
            if line.startswith("["):  # a framework may print lines of its own
                return json.loads(line)
        self._process.wait()
        self._errors.seek(0)
        errors = self._errors.read().strip().splitlines()
        raise WorkerError(errors[-1] if errors else "it said nothing")


def in_turn(workers: Sequence[Worker], *, rounds: int, count: int) -> list[list[float]]:
    """Times of each worker: A B A B ..., `count` at a time, after one round that does not count."""
    times = [[] for _ in workers]
    for number in range(rounds + 1):
        for worker, found in zip(workers, times):
            numbers = worker.times(count)
            if number:
                found.extend(numbers)
    return times


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown: medians, the spread of the middle half, minima or maxima, ratios, targets."""
    lines = [
        "| what | ours: median (spread), best | theirs | ratio by median | by best | target |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        ratio, best = row.ratio(), row.best_ratio()
        target = (
            "" if row.target is None else f"< {row.target:g} {row.unit}" if row.limit else f"{row.target:g}"
        )
        cells = [
            f"{row.part}: {row.case}",
            figures(row.ours, row.unit),
            figures(row.theirs, row.unit) if row.theirs else "",
            "" if ratio is None else f"{ratio:.2f}",
            "" if best is None else f"{best:.2f}",
            target,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figures(numbers: Sequence[float], unit: str) -> str:
    """Median, half the distance between the quartiles in percent of it, and the best."""
    median = statistics.median(numbers)
    best = max(numbers) if unit == "images/s" else min(numbers)
    if len(numbers) < 2:
        return f"{median:.3g} {unit}"
    low, _, high = statistics.quantiles(numbers, n=4)
    return f"{median:.3g} {unit} (±{(high - low) / 2 / median:.0%}), {best:.3g}"
