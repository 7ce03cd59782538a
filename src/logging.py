"""The project's log: one line an event, on the terminal and in a file of the run."""

from __future__ import annotations

import logging
import os
import sys
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import TextIO

from src.errors import one_line


class _OneLine(logging.Formatter):
    """Names of files, which messages hold, may hold anything."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return one_line(super().formatMessage(record))


_FORMAT = _OneLine("%(asctime)s:%(levelname)s:%(message)s", "%Y-%m-%d %H:%M:%S")


def hush_mindspore() -> None:
    """Leave out the warnings by which MindSpore's compile cache tells what it does; before its import."""
    os.environ.setdefault("MS_SUBMODULE_LOG_v", "{PIPELINE:3}")


def get_logger(
    log_dir: str | Path | None = None, rank: int = 0, stream: TextIO | None = None
) -> logging.Logger:
    """Set up the logger above all modules of `src` and return it; a further call replaces the set-up.

    Without `log_dir` the lines are kept, and go into the file of the next call that has one: a run's folder
    is made late, when everything else is known to be right.

    Args:
        log_dir: folder that gets `train.log`, appended to; of rank 0 alone.
        rank: only rank 0 writes all to the terminal, others warnings.
        stream: where on the terminal; standard output when left out.
    """
    logger = logging.getLogger("src")
    kept = []
    for handler in list(logger.handlers):
        if isinstance(handler, MemoryHandler):
            kept = list(handler.buffer)
        logger.removeHandler(handler)
        handler.close()
    terminal = _add(logger, logging.StreamHandler(stream or sys.stdout))
    if rank:
        terminal.setLevel(logging.WARNING)
    elif log_dir is None:
        _add(logger, MemoryHandler(capacity=10_000, flushLevel=logging.CRITICAL + 1))
    else:
        file = _add(logger, logging.FileHandler(Path(log_dir) / "train.log", encoding="utf-8"))
        for record in kept:
            file.handle(record)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


def _add(logger: logging.Logger, handler: logging.Handler) -> logging.Handler:
    """Add a handler; one that cannot write (a closed pipe, a full disk) says so once and ends nothing."""
    told = []

    def handle_error(record: logging.LogRecord) -> None:
        if not told:
            told.append(record)
            error = sys.exc_info()[1]
            others = [other for other in logger.handlers if other is not handler]
            name = getattr(handler, "baseFilename", "the terminal")
            line = f"{name} cannot be written ({error}); what is left of the log is elsewhere"
            for other in others:
                other.handle(logging.makeLogRecord({"levelname": "WARNING", "levelno": 30, "msg": line}))

    handler.handleError = handle_error
    handler.setFormatter(_FORMAT)
    logger.addHandler(handler)
    return handler
