"""Ctrl-C and SIGTERM in a program that sits in native code most of the time.

MindSpore puts a handler of its own in place of Python's whenever it runs a graph, and SIGINT then kills the
process. So SIGINT is blocked in all threads and fetched by one that watches for it. SIGTERM, by which
schedulers and launchers end a job, keeps a handler: child processes inherit what is blocked and could not be
ended otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator

from src.errors import Stopped

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
PATIENCE = 5.0  # seconds for a program that is not in the training loop to come back from native code


class StopSignals:
    """Ends the program at a signal, or asks the training loop to end.

    The main thread gets `Stopped`, but in the blocks that say otherwise. A further signal ends the process at
    once.

    Attributes:
        signum: the signal that came; 0 for none.
    """

    def __init__(self):
        self.signum = 0
        self._deferred = False
        self._notice = ""
        self._raised = False
        self._passed_on = False
        self._noted = 0  # SIGTERM that came in a deferred block
        self._claimed = False  # and was seen at its end
        self._lock = threading.Lock()
        self._over = threading.Event()

    @contextlib.contextmanager
    def watched(self) -> Iterator[StopSignals]:
        """Watch in the block; enter it before the first import of NumPy or MindSpore, whose threads inherit.

        In a thread that is not the main one Python cannot do this, and nothing is watched.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        handlers = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._forget)
        watcher = threading.Thread(target=self._watch, args=(reader,), name="signals", daemon=True)
        watcher.start()
        try:
            yield self
        finally:
            self._over.set()
            watcher.join()
            signal.set_wakeup_fd(wakeup)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            reader.close()
            writer.close()

    @contextlib.contextmanager
    def deferred(self, notice: str) -> Iterator[None]:
        """Let the block end itself when it sees `signum`; `notice` tells the user what happens meanwhile."""
        self._deferred, self._notice = True, notice
        try:
            yield
        finally:
            with self._lock:
                if self._noted and not self.signum:  # the watcher has yet to read of it
                    self.signum, self._claimed = self._noted, True
                elif not self.signum and _interrupted():
                    self.signum = signal.SIGINT.value
                self._raised |= self.signum != 0  # whoever ends the block need not be told again
                self._deferred = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let the block finish first, such as an import, which an exception would leave in pieces."""
        with self.deferred(""):
            yield
        if self.signum:
            raise Stopped(self.signum)

    def _watch(self, reader: socket.socket) -> None:
        deadline = None
        while not self._over.is_set():
            for number in self._arrived(reader):
                with self._lock:
                    if self._take(number):
                        deadline = time.monotonic() + PATIENCE
            late = deadline is not None and time.monotonic() > deadline
            if late and not self._raised and not self._deferred:
                os._exit(128 + self.signum)

    def _take(self, number: int) -> bool:
        """Do what a signal asks for; whether the main thread has to come back for it."""
        if self._claimed and number == signal.SIGTERM:
            self._claimed = False
            return False
        if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
            return False  # what is left is worth waiting for, such as the copy of the results
        if self.signum:
            os._exit(128 + self.signum)
        self.signum = number
        if self._deferred:
            if self._notice:
                log.warning("%s: %s", signal.Signals(number).name, self._notice)
            return False
        if number == signal.SIGINT:  # SIGTERM has come to the main thread by itself
            self._passed_on = True
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
        return True

    def _arrived(self, reader: socket.socket) -> list[int]:
        select.select([reader], [], [], POLL_SECONDS)
        numbers = [signal.SIGINT.value] if _interrupted() else []
        with contextlib.suppress(BlockingIOError):
            numbers += [number for number in reader.recv(64) if number == signal.SIGTERM]
        if self._passed_on and signal.SIGTERM in numbers:
            self._passed_on = False
            numbers.remove(signal.SIGTERM)
        return numbers

    def _handle(self, number: int, frame: object) -> None:
        """Runs in the main thread, at SIGTERM and when the watcher passes SIGINT on."""
        if self._deferred:
            self._noted = number
        elif not self._raised:
            self._raised = True
            raise Stopped(self.signum or number)

    def _forget(self) -> None:
        """A child process dies of these signals as any other does."""
        if not self._over.is_set():
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _interrupted() -> bool:
    """Take a SIGINT that waits. With a timeout Python returns garbage if SIGCONT cuts it short."""
    return signal.sigtimedwait({signal.SIGINT}, 0) is not None
