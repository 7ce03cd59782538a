"""Finding the checkpoint that a run goes on from, and what it says of the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from src.errors import UserError
from src.progress import Progress
from src.weight_file import SUFFIXES, open_weights

log = logging.getLogger(__name__)

TRAINING = "training"  # where the record of a checkpoint holds the state of the run
AUTO = "auto"


@dataclass(frozen=True)
class Start:
    """Where a run goes on.

    Attributes:
        path: the checkpoint.
        record: what it says of the network.
        progress: how far the run has come.
        config: the text of its configuration.
        data: a digest of its training images.
        device_num: number of its ranks.
    """

    path: Path
    record: dict
    progress: Progress
    config: str
    data: str
    device_num: int


def find_start(resume: str, *, root: str, run_name: str) -> Start | None:
    """Return the checkpoint to go on from; None to begin anew.

    Args:
        resume: a checkpoint; a folder: the newest in it and in its subfolders; `auto`: in `root/run_name`, or
            in all of `root` without a name; empty: none.
        root: folder of the runs.
        run_name: of this run, if it has one.

    Raises:
        UserError: there is no such checkpoint, or it is broken. With a folder or `auto` broken ones are
            skipped with a warning, and with `auto` there need not be any.
    """
    if not resume:
        return None
    if resume == AUTO:
        folder = Path(root, run_name)
        start = _newest(folder)
        if start is None:
            log.info("resume: no checkpoint of a run in %s, a new run begins", folder)
        return start
    path = Path(resume)
    if not path.is_dir():
        return _start(path, _record(path))
    start = _newest(path)
    if start is None:
        raise UserError(f"resume: {path} holds no checkpoint to go on from; name the folder of a run")
    return start


def _newest(folder: Path) -> Start | None:
    """The checkpoint with the most steps of the run in `folder` that was written to last."""
    for run in sorted(_runs(folder), key=_written, reverse=True):
        starts = list(_sound(run))
        if starts:
            return max(starts, key=lambda start: (start.progress.step, start.path.stat().st_mtime_ns))
    return None


def _runs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in (folder, *folder.iterdir()) if path.is_dir() and _files(path)]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)


def _written(run: Path) -> int:
    return max(path.stat().st_mtime_ns for path in _files(run))


def _sound(run: Path) -> Iterator[Start]:
    for path in _files(run):
        try:
            record = _record(path)
            if TRAINING in record:  # others are weights alone, such as the best ones
                yield _start(path, record)
        except UserError as error:
            log.warning("skipped: %s", error)


def _record(path: Path) -> dict:
    with open_weights(path) as file:
        return file.record


def _start(path: Path, record: dict) -> Start:
    if TRAINING not in record:
        raise UserError(
            f"{path} holds weights and no state of a run; name the last checkpoint of a run, or begin anew "
            "with --pretrained"
        )
    try:
        training = record[TRAINING]
        progress = Progress.from_record(training["progress"])
        rest = (training["config"], training["data"], training["device_num"])
        if tuple(map(type, rest)) != (str, str, int):
            raise ValueError(f"configuration, data and devices are {rest}")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: the state of the run is damaged ({error}); use another checkpoint"
        ) from None
    return Start(path, record, progress, *rest)


def training_record(progress: Progress, *, config: str, data: str, device_num: int) -> dict:
    """What a checkpoint holds, under `TRAINING`, for `find_start`."""
    return {"progress": progress.as_record(), "config": config, "data": data, "device_num": device_num}
