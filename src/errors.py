"""The user's faults: one exception type, and the helper that turns it into one line and exit code 1."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from typing import Callable

MAX_LINE = 2000  # letters of an error; a damaged file can give names without end


class UserError(ValueError):
    """A fault that the user can mend. The text says what was wanted, what came and what to do."""


class MissingDataError(UserError):
    """There is nothing where images were looked for, as opposed to something wrong."""


class Stopped(BaseException):
    """A signal asked for the end of the program."""

    def __init__(self, signum: int):
        super().__init__(signum)
        self.signum = signum


class ArgumentParser(argparse.ArgumentParser):
    """An `argparse` parser that raises `UserError` instead of exiting with code 2."""

    def error(self, message: str) -> None:
        """Report bad arguments the way every other fault is reported."""
        raise UserError(f"{message}; see '{self.prog} --help'")


def one_line(text: str) -> str:
    """Return `text` as a terminal may have it: line breaks, escapes and broken bytes of a name as `\\x1b`."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def run_main(main: Callable[[], object]) -> int:
    """Call `main` and return the exit code of the process.

    A `UserError` becomes one line `error: ...` on standard error and code 1, so does missing memory; Ctrl-C
    or SIGTERM give a line and code 130 or 143. Every other exception is a fault of this project and keeps its
    traceback.
    """
    try:
        main()
    except UserError as error:
        _report("error: " + " ".join(str(error).split()))
        return 1
    except MemoryError as error:
        _report(
            f"error: there is not enough memory ({error or 'none is left'}); use smaller images or batches"
        )
        return 1
    except KeyboardInterrupt:
        _report("interrupted")
        return 128 + signal.SIGINT
    except Stopped as stop:
        _report("interrupted" if stop.signum == signal.SIGINT else "terminated")
        return 128 + stop.signum
    return 0


def _report(line: str) -> None:
    """Print a closing line on standard error, and write it into the log file of the run, if there is one."""
    line = one_line(line)
    if len(line) > MAX_LINE:
        line = f"{line[: MAX_LINE // 2]} ... {line[-MAX_LINE // 2 :]}"
    print(line, file=sys.stderr)  # noqa: T201
    record = logging.makeLogRecord(
        {"name": "src", "levelname": "ERROR", "levelno": logging.ERROR, "msg": line}
    )
    for handler in logging.getLogger("src").handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)
