"""`metrics.csv`: a row for each step of a run, whole after a kill, continued by a resumed run."""

from __future__ import annotations

import csv
import io
import logging
import math
from pathlib import Path
from typing import NamedTuple

from src.atomic import replacing
from src.user_files import open_regular

log = logging.getLogger(__name__)


class Row(NamedTuple):
    """One step, or an evaluation alone; what was not measured is None, and empty in the file."""

    step: int
    epoch: int  # from 0
    loss: float | None = None  # NaN: a step with bad numbers, which was not applied
    gradient_norm: float | None = None
    learning_rate: float | None = None
    images_per_second: float | None = None
    data_wait: float | None = None  # share of the step's time in which it waited for images
    top1: float | None = None
    top5: float | None = None


class MetricsFile:
    """Appends rows, and keeps them in `rows` for whoever draws them.

    A file that cannot be written (a full disk) is told once, and ends nothing.

    Args:
        path: the file.
        step: where the run stands.
        before: the file of the run so far; rows of it up to `step` are kept, later ones are of a part that is
            trained again.
    """

    def __init__(self, path: Path, step: int = 0, before: Path | None = None):
        self.path = path
        self.rows = [row for row in _read(before) if row.step <= step] if before else []
        self._told = False
        self._stream = None
        if before and len({row.step for row in self.rows}) < step:
            log.warning("%s: only %d of %d steps could be read", before, len(self.rows), step)
        self._write_all()

    def amend(self, row: Row) -> None:
        """Put what is known in `row` into the row of the same step, which is the newest."""
        if not self.rows or self.rows[-1].step != row.step:
            self.append(row)
            return
        known = {name: value for name, value in row._asdict().items() if value is not None}
        self.rows[-1] = self.rows[-1]._replace(**known)
        self.close()
        self._write_all()

    def _write_all(self) -> None:
        try:
            with replacing(self.path) as stream:
                stream.write(_lines(Row._fields, *self.rows).encode())
            self._stream = self.path.open("a", encoding="utf-8")
        except OSError as error:
            self._stream = None
            self._tell(error)

    def append(self, row: Row) -> None:
        """Add a row."""
        self.rows.append(row)
        if self._stream is None:
            return
        try:
            self._stream.write(_lines(row))
            self._stream.flush()
        except OSError as error:
            self._tell(error)

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            try:
                self._stream.close()
            except OSError as error:
                self._tell(error)

    def _tell(self, error: OSError) -> None:
        if not self._told:
            log.warning("cannot write %s: %s; the run goes on without it", self.path, error.strerror)
        self._told = True


def _lines(*rows: tuple) -> str:
    text = io.StringIO()
    cells = ([f"{cell:.7g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue()


def _read(path: Path) -> list[Row]:
    """The whole rows of a file; what a killed run left half-written is left out."""
    rows = []
    try:
        with io.TextIOWrapper(open_regular(path), "utf-8", "replace", newline="") as stream:
            for cells in csv.reader(stream):
                if len(cells) == len(Row._fields) and cells[0].isdecimal():
                    numbers = [_number(cell) for cell in cells[2:]]
                    rows.append(Row(int(cells[0]), int(_number(cells[1]) or 0), *numbers))
    except (OSError, csv.Error, ValueError, OverflowError) as error:
        log.warning("%s cannot be read to its end: %s", path, error)
    return rows


def _number(cell: str) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        return math.nan
