"""Work that one process of a machine does while the others wait for it.

The processes meet at a file, the marker, and lock it. The kernel frees the lock of a process that has ended,
so nobody waits for the dead, and a marker that an earlier job left is locked by nobody and means nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Callable

from src.errors import UserError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
LATE_SECONDS = 30.0
STOP_SECONDS = 1.0  # of a process that was told to stop


@contextlib.contextmanager
def once(
    path: Path,
    work: Callable[[], object],
    *,
    me: str,
    members: Iterable[str],
    wait_seconds: float,
    late_seconds: float = LATE_SECONDS,
) -> Iterator[None]:
    """Let the first process that comes do the work and the others wait; the block runs when it is done.

    The marker is removed when the last process has left its block.

    Args:
        path: the marker, which is this job's alone.
        work: copies the data. If it fails in one process, all end.
        me: name of this process, one word.
        members: names of the processes of the machine that hear of a failure.
        wait_seconds: how long to wait for the work of another.
        late_seconds: how long a failed process stays for members that have not come yet.

    Raises:
        UserError: another process failed, died or took too long.
    """
    try:
        marker = _Marker(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; set TMPDIR to another folder") from None
    try:
        if marker.enter(wait_seconds):
            marker.begin(me)
            try:
                work()
            except Exception as error:
                marker.fail(f"{error}" or type(error).__name__, set(members) - {me}, late_seconds)
                raise
            except BaseException:
                marker.fail("it was stopped", set(members) - {me}, STOP_SECONDS)
                raise
            marker.end("done")
        elif marker.reason is not None:
            marker.write("seen", me)
            raise UserError(f"another process of this machine could not copy: {marker.reason}")
        elif not marker.done:
            died = f"process {marker.worker} died while it copied; see its log"
            marker.write("seen", me)  # two that notice at once wait for each other
            marker.fail(died, set(members) - {me, marker.worker}, late_seconds)
            raise UserError(died)
        yield
    finally:
        marker.leave()


class _Marker:
    """The open file, locked alone by the process that works and shared by all when that is over.

    Its lines are `begun NAME`, then `done` or `failed REASON`, then `seen NAME` of each reader of a failure.
    The locks are those of `lockf`, which child processes do not inherit.
    """

    def __init__(self, path: Path):
        self.path = path
        self._open()

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._file = os.open(self.path, flags, 0o600)

    @property
    def done(self) -> bool:
        return "done" in dict(self._lines())

    @property
    def reason(self) -> str | None:
        return dict(self._lines()).get("failed")

    @property
    def worker(self) -> str:
        return dict(self._lines()).get("begun", "")

    def _lines(self) -> list[tuple[str, str]]:
        text = os.pread(self._file, 1 << 20, 0).decode(errors="replace")
        return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines())]

    def write(self, word: str, text: str = "") -> None:
        os.write(self._file, f"{word} {' '.join(text.split())[:2000]}\n".encode(errors="replace"))

    def enter(self, wait_seconds: float) -> bool:
        """Wait for the lock: True if the work is ours, locked alone, False if another has had it."""
        deadline = time.monotonic() + wait_seconds
        waited = False
        while True:
            alone = not waited and self._lock(fcntl.LOCK_EX)
            if alone or self._lock(fcntl.LOCK_SH):
                if self._is_at_its_path():
                    return alone
                os.close(self._file)  # the last process of another time removed it just now
                self._open()
                waited = False
                continue
            if not waited:
                log.info("waiting for another process of this machine that copies")
            waited = True
            if time.monotonic() > deadline:
                raise UserError(
                    f"another process of this machine still copies after {wait_seconds / 60:g} minutes; "
                    "raise copy_minutes"
                )
            time.sleep(POLL_SECONDS)

    def begin(self, name: str) -> None:
        os.ftruncate(self._file, 0)
        self.write("begun", name)

    def end(self, word: str, text: str = "") -> None:
        """Write the result and let the others read it."""
        self.write(word, text)
        self._lock(fcntl.LOCK_SH)

    def fail(self, reason: str, others: set[str], late_seconds: float) -> None:
        """Write that it failed, and stay until the others have seen it: some may not have come yet."""
        self.end("failed", reason)
        deadline = time.monotonic() + late_seconds
        while time.monotonic() < deadline:
            if others <= {name for word, name in self._lines() if word == "seen"}:
                break
            time.sleep(POLL_SECONDS)

    def leave(self) -> None:
        """Give the lock back; the last one removes the file."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        if self._lock(fcntl.LOCK_EX) and self._is_at_its_path():
            self.path.unlink()
        os.close(self._file)

    def _lock(self, kind: int) -> bool:
        try:
            fcntl.lockf(self._file, kind | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _is_at_its_path(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), self.path.lstat())
        return False
