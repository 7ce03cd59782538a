"""Watching the processes of a run, and ending them: no rank outlives the run, whoever started it.

Each rank is known by its folder `<run>/<name>`, with `log` and, when it has ended, `exit_code`. Every process
of the run has the run's folder in its environment as LAUNCH_RUN, and those of a rank its name as LAUNCH_NAME.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import psutil  # comes with MindSpore, whose msrun needs it

from src.errors import Stopped

PAUSE = 0.1  # seconds between two looks
FAILURE_GRACE = 15.0  # seconds for the others when a rank has failed: they wait for it in vain
KILL_SECONDS = 10.0  # a killed process that is still there after this hangs in the kernel


@dataclass(frozen=True)
class Starter:
    """A process that runs the ranks in `names`: the one of that name, or msrun."""

    name: str
    process: subprocess.Popen
    names: tuple[str, ...]


def new_run_folder(parent: Path) -> Path:
    """Create `parent/<time>`, which no other run has."""
    now = time.strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        folder = parent / (now if number == 1 else f"{now}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Raise `Stopped` in the block on Ctrl-C, SIGTERM and, unless it is ignored as under nohup, SIGHUP."""

    def stop(signum: int, frame: object) -> None:
        raise Stopped(signum)

    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    before = {signum: signal.signal(signum, stop) for signum in signals}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def supervise(
    folder: Path, start: Iterable[Starter], *, show: Callable[[], None], grace: float
) -> tuple[str | None, int]:
    """Start the processes, wait for all ranks and leave none behind.

    Args:
        folder: of the run.
        start: starts the processes one by one.
        show: called again and again while they run.
        grace: seconds that ranks have to end after a signal, and msrun after its ranks; at most
            `FAILURE_GRACE` when one has failed.

    Returns:
        What failed first and its exit code; or None and 0, or 128 + the signal that ended the run.
    """
    starters: list[Starter] = []
    failed, code = None, 0
    with _stopped_by_signals():
        try:
            for starter in start:
                starters.append(starter)
            failed, code = _watch(folder, starters, show)
            if failed is None:
                _wait_for(starters, grace)
            else:
                _stop_ranks(folder, starters, signal.SIGTERM, min(grace, FAILURE_GRACE))
        except Stopped as stop:
            code = code or 128 + stop.signum
            with contextlib.suppress(Stopped):  # a second signal: no more patience
                signum = signal.SIGINT if stop.signum == signal.SIGINT else signal.SIGTERM
                _stop_ranks(folder, starters, signum, grace)
        finally:
            _kill_all(folder, starters)
    show()
    return failed, code


def _watch(folder: Path, starters: Sequence[Starter], show: Callable[[], None]) -> tuple[str | None, int]:
    """Wait until all ranks have ended well, or the first process fails; return its name and exit code."""
    ranks = {name for starter in starters for name in starter.names}
    while True:
        ended = [starter for starter in starters if starter.process.poll() is not None]
        files = {path.parent.name: path for path in folder.glob("*/exit_code")}
        codes = {name: int(path.read_text(encoding="ascii")) for name, path in files.items()}
        show()
        failed = [name for name, code in codes.items() if code]
        if failed:
            first = min(failed, key=lambda name: files[name].stat().st_mtime_ns)
            return first, codes[first]
        if ranks <= codes.keys():
            return None, 0
        for starter in ended:
            if not codes.keys() >= set(starter.names):
                code = starter.process.returncode
                return starter.name, 128 - code if code < 0 else code or 1
        time.sleep(PAUSE)


def _wait_for(starters: Sequence[Starter], seconds: float) -> None:
    """Let the starters end of themselves, for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(starter.process.poll() is None for starter in starters):
        time.sleep(PAUSE)


def _stop_ranks(folder: Path, starters: Sequence[Starter], signum: int, seconds: float) -> None:
    """Send the signal to the ranks and wait for them so long. Msrun would cut it short: it is frozen."""
    for starter in starters:
        if starter.name == "msrun" and starter.process.poll() is None:
            starter.process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + seconds
    for process in _processes(folder, of_ranks=True):
        with contextlib.suppress(psutil.Error):
            process.send_signal(signum)
    while time.monotonic() < deadline and any(_processes(folder, of_ranks=True)):
        time.sleep(PAUSE)


def _kill_all(folder: Path, starters: Sequence[Starter]) -> None:
    """Kill what is left of the run, ranks before their parents, deaf to further signals."""
    before = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for of_ranks in (True, False):
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline and (left := list(_processes(folder, of_ranks))):
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(PAUSE)
    for starter in starters:
        starter.process.poll()
    for signum, handler in before.items():
        signal.signal(signum, handler)


def _processes(folder: Path, of_ranks: bool = False) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environ = process.environ()  # of a process that has ended it is empty
            is_rank = environ.get("LAUNCH_NAME", "").startswith("rank_")
            if environ.get("LAUNCH_RUN") == str(folder) and (is_rank or not of_ranks):
                yield process


class LogFollower:
    """Copies what is added to a log to standard output."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def __call__(self) -> None:
        """Copy what is new."""
        try:
            with self._path.open("rb") as log:
                log.seek(self._position)
                data = log.read()
        except FileNotFoundError:
            return
        self._position += len(data)
        with contextlib.suppress(OSError):  # the run goes on when nobody reads any more
            while data:
                data = data[os.write(1, data) :]


def last_lines(path: Path, count: int = 20) -> list[str]:
    """Return the last lines of a log, without MindSpore's notes and warnings if there is anything else."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 64 * 1024))
            lines = log.read().decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return ([line for line in lines if not line.startswith(("[INFO] ", "[WARNING] "))] or lines)[-count:]
