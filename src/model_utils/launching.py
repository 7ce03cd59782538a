"""What a run on one or several devices starts here: ranks, environment, cores, port. Starts nothing."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from src.errors import UserError
from src.model_utils.rank_table import Device, RankTable, find_server, read_rank_table

DEFAULT_PORT = 8118  # of msrun's scheduler, where several servers must agree on it
THIS_MACHINE = "127.0.0.1"

# What another launcher left behind would contradict this one.
LEFT_BEHIND = (
    "RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE", "DEVICE_ID", "MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM",
    "MS_SCHED_HOST", "MS_SCHED_PORT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The ranks of this server, and how all `size` ranks find each other."""

    size: int
    devices: tuple[Device, ...]
    device_target: str | None = None  # None: what the installed MindSpore defaults to
    table: Path | None = None  # Ascend meets through it; the others, and Ascend without, through msrun
    master: str = THIS_MACHINE  # where msrun's scheduler runs
    node_rank: int = 0  # number of this server, for msrun
    alone: bool = False  # one process that takes RANK_ID, DEVICE_ID, ... from the environment as it is

    @property
    def through_msrun(self) -> bool:
        """Whether msrun starts the ranks."""
        return self.size > 1 and self.table is None

    @property
    def servers(self) -> int:
        """Number of servers, of equally many ranks each, as msrun has it."""
        return self.size // len(self.devices)


def make_plan(ranks: str | None, *, device_target: str | None = None, server_id: str | None = None) -> Plan:
    """Decide what starts here.

    Args:
        ranks: a rank table, a number of processes on this machine, or None for one process.
        device_target: of the configuration.
        server_id: this server's entry of the table; None looks for this machine's addresses.

    Raises:
        UserError: the table is faulty or this server is not in it.
    """
    if ranks is None:
        return Plan(1, (Device(0, 0),), device_target, alone=True)
    if ranks.isascii() and ranks.isdecimal():
        if int(ranks) == 0:
            raise UserError("the number of ranks must be 1 or more, got 0")
        return Plan(int(ranks), tuple(Device(i, i) for i in range(int(ranks))), device_target)
    table = read_rank_table(ranks, device_target)
    server = find_server(table, server_id)
    if table.device_target == "Ascend":
        return Plan(table.size, server.devices, "Ascend", table.path if table.size > 1 else None)
    _check_for_msrun(table)
    return Plan(
        table.size,
        server.devices,
        table.device_target,
        master=THIS_MACHINE if len(table.servers) == 1 else table.servers[0].server_id,
        node_rank=table.servers.index(server),
    )


def _check_for_msrun(table: RankTable) -> None:
    """Msrun numbers the ranks itself: server after server, equally many on each."""
    count = table.size // len(table.servers)
    for number, server in enumerate(table.servers):
        ranks = [device.rank for device in server.devices]
        if ranks != list(range(number * count, (number + 1) * count)):
            raise UserError(
                f"the rank table {table.path}: server {server.server_id} has the ranks {ranks}; on "
                f"{table.device_target} each server must have equally many, the next ones in order"
            )


def environment(plan: Plan, environ: Mapping[str, str], device: Device | None = None) -> dict[str, str]:
    """Return the environment of the rank on `device`, or of msrun, which tells its workers the rest."""
    if plan.alone:
        return dict(environ)
    kept = {key: value for key, value in environ.items() if key not in LEFT_BEHIND}
    if device is None:
        return kept
    place = {"RANK_ID": device.rank, "RANK_SIZE": plan.size, "DEVICE_ID": device.device_id}
    table = {"RANK_TABLE_FILE": str(plan.table)} if plan.table else {}
    return {**kept, **{key: str(value) for key, value in place.items()}, **table}


def msrun_command(plan: Plan, port: int, log_dir: str, python: str) -> list[str]:
    """Return the command of msrun, to which the workers' own command is appended."""
    options = {
        "worker_num": plan.size,
        "local_worker_num": len(plan.devices),
        "master_addr": plan.master,
        "master_port": port,
        "node_rank": plan.node_rank,
        "log_dir": log_dir,
        "join": True,
        "tail_worker_log": plan.size,  # no such rank: the launcher shows the log
    }
    command = [python, "-m", "mindspore.parallel.cluster.run"]
    return command + [f"--{name}={value}" for name, value in options.items()]


def choose_port(plan: Plan, port: int | None = None) -> int:
    """Return the scheduler's port: `port`, or a free one, or, of several servers, the one they agree on.

    Raises:
        UserError: that port is taken on this machine.
    """
    if port is None and plan.servers == 1:
        with socket.socket() as probe:
            probe.bind((THIS_MACHINE, 0))
            return probe.getsockname()[1]
    port = port or DEFAULT_PORT
    if plan.node_rank == 0 and is_taken(port):
        raise UserError(
            f"port {port} is taken on this server; choose another by --master_port, on all servers"
        )
    return port


def is_taken(port: int) -> bool:
    """Whether another program uses this TCP port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one just given up is free
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


def share_cores(cores: Sequence[int], ranks: int) -> list[list[int]]:
    """Split the cores into one block for each rank; if there are fewer cores, the blocks are empty."""
    if ranks == 1 or len(cores) < ranks:
        return [[] for _ in range(ranks)]
    bounds = [len(cores) * rank // ranks for rank in range(ranks + 1)]
    return [list(cores[start:end]) for start, end in zip(bounds, bounds[1:])]
