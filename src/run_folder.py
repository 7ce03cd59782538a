"""The folder of a run: never one that another run has used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from src.class_map import CLASS_MAP, write_class_map
from src.errors import UserError


def start_run(root: str, run_name: str, *, config: str, class_names: Sequence[str]) -> Path:
    """Create the folder of a new run, with its configuration and class map in it.

    Args:
        root: the folder that holds the runs.
        run_name: name of the folder; empty for the time of day.
        config: text of `config.yml`.
        class_names: in the order of their numbers, for `class_map.json`.

    Returns:
        The folder, `root/run_name` or `root/<time>`.

    Raises:
        UserError: the named folder is in use, or cannot be written.
    """
    names = [run_name] if run_name else _dated_names()
    for name in names:
        folder = Path(root) / name
        try:
            folder.mkdir(parents=True)
            (folder / "config.yml").write_text(config, encoding="utf-8")
            write_class_map(folder / CLASS_MAP, class_names)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(
                f"cannot write the folder {folder}: {error.strerror}; choose another save_checkpoint_path"
            ) from error
        return folder
    raise UserError(f"{folder} exists; choose another run_name, or remove it")


def _dated_names() -> list[str]:
    now = time.strftime("%Y%m%d-%H%M%S")
    return [now, *(f"{now}-{number}" for number in range(2, 100))]
