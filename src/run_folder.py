"""The folder of a run, which one process at a time writes to."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from src.atomic import is_temporary, replacing
from src.class_map import CLASS_MAP, write_class_map
from src.errors import UserError

LOCK = ".lock"
CONFIG = "config.yml"


def is_run_folder(folder: Path) -> bool:
    """Whether a run has begun in the folder."""
    return (folder / CONFIG).exists()


@contextlib.contextmanager
def run_folder(
    root: str, run_name: str, *, config: str, class_names: Sequence[str], again: bool = False
) -> Iterator[Path]:
    """Create the folder of a run, with its configuration and class map in it; the block has it for itself.

    Args:
        root: the folder that holds the runs.
        run_name: name of the folder; empty for the time of day.
        config: text of `config.yml`.
        class_names: in the order of their numbers, for `class_map.json`.
        again: the folder may be there already: the run goes on in it.

    Yields:
        The folder, `root/run_name` or `root/<time>`.

    Raises:
        UserError: the named folder is in use, or cannot be written.
    """
    folder = _made(Path(root), run_name, again)
    with contextlib.ExitStack() as lock:
        try:
            lock.enter_context(_locked(folder))
            for path in folder.iterdir():
                if is_temporary(path):  # of a run that was killed while it wrote
                    path.unlink()
            with replacing(folder / CONFIG) as stream:
                stream.write(config.encode())
            write_class_map(folder / CLASS_MAP, class_names)
        except OSError as error:
            raise _unwritable(folder, error) from error
        yield folder


def _made(root: Path, run_name: str, again: bool) -> Path:
    for name in [run_name] if run_name else _dated_names():
        folder = root / name
        try:
            folder.mkdir(parents=True, exist_ok=again)
        except FileExistsError:
            continue
        except OSError as error:
            raise _unwritable(folder, error) from error
        return folder
    raise UserError(f"{folder} exists; choose another run_name, resume the run (resume), or remove it")


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot write the folder {folder}: {error.strerror}; choose another save_checkpoint_path"
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out; the kernel opens the lock when this one ends, however it ends."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"another process trains in {folder}; wait for it, end it, or choose another run_name"
                ) from None
        yield
    finally:
        os.close(handle)


def _dated_names() -> list[str]:
    now = time.strftime("%Y%m%d-%H%M%S")
    return [now, *(f"{now}-{number}" for number in range(2, 100))]
