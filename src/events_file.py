"""The rows of `metrics.csv` for TensorBoard."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from src.metrics_file import Row

log = logging.getLogger(__name__)


class EventsFile:
    """Appends the numbers of rows; a file that cannot be written (a full disk) is told once and given up.

    It writes at once: tensorboardX's own `SummaryWriter` has a thread for that, which a full disk ends, and
    whoever then fills its queue waits for ever. MindSpore must have been imported before: it cannot be once
    tensorboardX has loaded protobuf.

    Args:
        folder (Path): gets the file.
        step (int): where the run stands; later points of an earlier start are hidden.
    """

    def __init__(self, folder: Path, step: int):
        from tensorboardX.event_file_writer import EventsWriter  # for those who want it
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self.folder = folder
        self._event = Event
        self._writer = None
        try:
            folder.mkdir(exist_ok=True)
            self._writer = EventsWriter(str(folder / "events"))
        except OSError as error:
            self._give_up(error)
        if step:
            self._write(step + 1, session_log=SessionLog(status=SessionLog.START))

    def append(self, row: Row) -> None:
        """Add the numbers of a row."""
        from tensorboardX.summary import scalar

        for name, value in row._asdict().items():
            if name != "step" and value is not None:
                self._write(row.step, summary=scalar(name, value))

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                self._give_up(error)

    def _write(self, step: int, **content) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write_event(self._event(step=step, wall_time=time.time(), **content))
            self._writer.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._writer = None
        log.warning("cannot write %s: %s; the run goes on without it", self.folder, error.strerror)
