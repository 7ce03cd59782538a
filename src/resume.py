"""Finding the checkpoint that a run goes on from, and what it says of the run."""

from __future__ import annotations

import contextlib
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
        resume: a checkpoint; a folder: the newest in it, or if it holds none itself in its subfolders;
            `auto`: in `root/run_name`, or in all of `root` without a name; empty: none.
        root: folder of the runs.
        run_name: of this run, if it has one.

    Raises:
        UserError: there is no such checkpoint, or it is broken. With a folder or `auto` broken ones are
            skipped with a warning, and with `auto` there need not be any.
    """
    if not resume:
        return None
    try:
        return (
            _find_auto(Path(root, run_name), named=bool(run_name)) if resume == AUTO else _find(Path(resume))
        )
    except OSError as error:
        raise UserError(f"resume: cannot read {error.filename}: {error.strerror}") from error


def _find_auto(folder: Path, *, named: bool) -> Start | None:
    start, broken = _newest(folder)
    if start is None and broken and named:
        raise UserError(
            f"resume: no checkpoint in {folder} is whole; mend or remove {', '.join(broken)}, or choose "
            "another run_name"
        )
    if start is None:
        log.info("resume: no checkpoint of a run in %s, a new run begins", folder)
    return start


def _find(path: Path) -> Start:
    if not path.exists():
        raise UserError(f"resume: {path} does not exist; name a checkpoint or the folder of a run")
    if not path.is_dir():
        return _start(path, _record(path))
    start, _ = _newest(path)
    if start is None:
        raise UserError(f"resume: {path} holds no checkpoint to go on from; name the folder of a run")
    return start


def set_aside_later(start: Start) -> None:
    """Rename the checkpoints of `start`'s folder that have more steps: the run goes back before them."""
    for other in _sound(start.path.parent, []):
        if other.progress.step > start.progress.step:
            aside = other.path.with_name(f"{other.path.name}.abandoned")
            log.warning("%s is of step %d: set aside as %s", other.path, other.progress.step, aside.name)
            try:
                other.path.replace(aside)
            except OSError as error:
                raise UserError(f"cannot rename {other.path}: {error.strerror}") from error


def _newest(folder: Path) -> tuple[Start | None, list[str]]:
    """The checkpoint with the most steps of the run in `folder` that was written to last; what is broken."""
    broken: list[str] = []
    for run in sorted(_runs(folder), key=_written, reverse=True):
        starts = list(_sound(run, broken))
        if starts:
            return max(starts, key=lambda start: (start.progress.step, start.path.stat().st_mtime_ns)), broken
    return None, broken


def _runs(folder: Path) -> list[Path]:
    """The folder itself when it holds checkpoints, and else its subfolders."""
    if not folder.is_dir():
        return []
    return [folder] if _files(folder) else [path for path in folder.iterdir() if path.is_dir()]


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    except OSError as error:
        log.warning("skipped: %s: %s", folder, error.strerror)
        return []


def _written(run: Path) -> float:
    times = [0.0]
    for path in _files(run):
        with contextlib.suppress(OSError):  # a run that is going on may have removed it
            times.append(path.stat().st_mtime)
    return max(times)


def _sound(run: Path, broken: list[str]) -> Iterator[Start]:
    """The whole checkpoints of a run; names of others are added to `broken`."""
    for path in _files(run):
        try:
            record = _record(path)
            if TRAINING in record:  # others are weights alone, such as the best ones
                yield _start(path, record)
        except (UserError, OSError) as error:
            broken.append(path.name)
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
