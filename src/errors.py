"""The user's faults: one exception type, and the helper that turns it into one line and exit code 1."""

from __future__ import annotations

import argparse
import sys
from typing import Callable


class UserError(ValueError):
    """A fault that the user can mend. The text says what was wanted, what came and what to do."""


class ArgumentParser(argparse.ArgumentParser):
    """An `argparse` parser that raises `UserError` instead of exiting with code 2."""

    def error(self, message: str) -> None:
        """Report bad arguments the way every other fault is reported."""
        raise UserError(f"{message}; see '{self.prog} --help'")


def run_main(main: Callable[[], object]) -> int:
    """Call `main` and return the exit code of the process.

    A `UserError` becomes one line `error: ...` on standard error and code 1. Every other exception is a fault
    of this project and keeps its traceback.
    """
    try:
        main()
    except UserError as error:
        print("error: " + " ".join(str(error).split("\n")), file=sys.stderr)  # noqa: T201
        return 1
    return 0
