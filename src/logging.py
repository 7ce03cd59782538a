"""The project's log: one line an event, on the terminal and in a file of the run."""

from __future__ import annotations

import logging
import sys
from pathlib import Path


def get_logger(log_dir: str | Path | None = None, rank: int = 0) -> logging.Logger:
    """Set up the logger above all modules of `src` and return it. Calling it again replaces the set-up.

    Args:
        log_dir: folder that gets `train.log` (`train_<rank>.log` beyond rank 0), appended to; None for no
            file.
        rank: only rank 0 writes to the terminal.
    """
    logger = logging.getLogger("src")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout)] if rank == 0 else []
    if log_dir is not None:
        name = f"train_{rank}.log" if rank else "train.log"
        handlers.append(logging.FileHandler(Path(log_dir) / name, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s:%(levelname)s:%(message)s", "%Y-%m-%d %H:%M:%S"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger
