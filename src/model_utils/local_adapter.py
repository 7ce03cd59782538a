"""What the environment says about where this process runs: the variables of msrun, rank tables and mpirun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from src.errors import UserError

LAUNCH = "start all ranks with scripts/run_train_distribute.sh"


class Place(NamedTuple):
    """This process is number `rank` of `device_num`."""

    rank: int
    device_num: int


def get_device_id(environ: Mapping[str, str] | None = None) -> int:
    """Number of the card: DEVICE_ID, or 0."""
    environ = os.environ if environ is None else environ
    return _number(environ, "DEVICE_ID") or 0


def get_place(environ: Mapping[str, str] | None = None) -> Place:
    """Rank and number of processes: RANK_ID and RANK_SIZE, or mpirun's; one process without them.

    Raises:
        UserError: one is set without the other, or nothing tells the ranks how to find each other: eight
            processes that each train alone are the worst of all outcomes.
    """
    environ = os.environ if environ is None else environ
    for rank_key, size_key, meeting in (
        ("RANK_ID", "RANK_SIZE", ("RANK_TABLE_FILE", "MS_SCHED_HOST")),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ()),
    ):
        rank, size = _number(environ, rank_key), _number(environ, size_key)
        if rank is None and size is None:
            continue
        if rank is None or size is None:
            given, missing = (size_key, rank_key) if rank is None else (rank_key, size_key)
            raise UserError(f"the environment has {given} without {missing}; {LAUNCH}, or unset {given}")
        if not rank < size:
            raise UserError(f"the environment has {rank_key} {rank} of {size_key} {size}; {LAUNCH}")
        if size > 1 and meeting and not any(environ.get(key) for key in meeting):
            raise UserError(
                f"the environment has {size_key} {size}, but neither {' nor '.join(meeting)}: the ranks "
                f"cannot find each other; {LAUNCH}, or unset {size_key}"
            )
        return Place(rank, size)
    return Place(0, 1)


def _number(environ: Mapping[str, str], key: str) -> int | None:
    text = environ.get(key)
    if text is None:
        return None
    if not text.isdecimal():
        raise UserError(f"the environment variable {key} wants a whole number and holds {text!r}")
    return int(text)
