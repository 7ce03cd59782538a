"""Rank tables: the hccl JSON that hccl_tools writes, one or several servers, read and checked.

A table of CPU or GPU workers is the same JSON with `"device_target": "CPU"` (or "GPU") at the top; its
devices need no `device_ip`. Without that key a table in which no device has a `device_ip` is of CPU workers.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shown  # of values of any depth and length
from typing import Any, Callable

from src.errors import UserError
from src.user_files import read_json

MAX_DIGITS = 9  # of a rank or a device
DEVICE_TARGETS = ("CPU", "GPU", "Ascend")


@dataclass(frozen=True)
class Device:
    """One device and the global rank of the process that computes on it."""

    rank: int
    device_id: int
    device_ip: str = ""


@dataclass(frozen=True)
class Server:
    """One machine: its name or address, and its devices in the order of their ranks."""

    server_id: str
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class RankTable:
    """The servers in the order of their lowest ranks; `size` is the number of all ranks."""

    path: Path
    device_target: str
    servers: tuple[Server, ...]

    @property
    def size(self) -> int:
        """Number of ranks on all servers."""
        return sum(len(server.devices) for server in self.servers)


def read_rank_table(path: str | Path, device_target: str | None = None) -> RankTable:
    """Read and check a rank table.

    Args:
        path: the JSON file.
        device_target: what the ranks will be told to compute on; None takes what the table says.

    Raises:
        UserError: names the file, the place in it and what is wrong there.
    """
    path = Path(path).absolute()
    try:
        root = _Place(path, "the table", read_json(path))
    except OSError as error:
        raise UserError(f"cannot read the rank table {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise UserError(
            f"the rank table {path} is no JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        ) from error
    except ValueError as error:
        raise UserError(f"the rank table {path} is no JSON text") from error
    if root.get("status", "completed") != "completed":
        raise root.fault(f'has status {shown(root.get("status"))}, not "completed"; write it anew')
    servers = [_server(place) for place in root.places("server_list", "server")]
    count = root.get("server_count")
    if count not in (None, len(servers), str(len(servers))):
        raise root.fault(f"has server_count {shown(count)}, but {len(servers)} in server_list")
    devices = [device for server in servers for device in server.devices]
    root.unique("server_id", (server.server_id for server in servers))
    root.unique("rank_id", (device.rank for device in devices))
    if max(device.rank for device in devices) != len(devices) - 1:
        missing = min(set(range(len(devices))) - {device.rank for device in devices})
        raise root.fault(
            f"has {len(devices)} devices, whose rank_id must run from 0 up, but none has {missing}"
        )
    target = _device_target(root, devices, device_target)
    if target == "Ascend":
        root.unique("device_ip", (device.device_ip for device in devices if device.device_ip))
    return RankTable(path, target, tuple(sorted(servers, key=lambda server: server.devices[0].rank)))


def find_server(
    table: RankTable, server_id: str | None = None, is_local: Callable[[str], bool] | None = None
) -> Server:
    """Return this machine's entry: that named `server_id`, or else that whose server_id is an address here.

    Raises:
        UserError: there is none, or there are several.
    """
    names = ", ".join(server.server_id for server in table.servers)
    if server_id is not None:
        found = [server for server in table.servers if server.server_id == server_id]
        wanted = f"server_id {server_id}"
    else:
        found = [server for server in table.servers if (is_local or is_local_address)(server.server_id)]
        wanted = f"this server ({socket.gethostname()})"
    if not found:
        raise UserError(
            f"{wanted} is not in the rank table {table.path}, which has {names}; "
            "write the table anew, or say which of them this is by --server_id"
        )
    if len(found) > 1:
        several = ", ".join(server.server_id for server in found)
        raise UserError(
            f"{several} of the rank table {table.path} are all addresses here; choose by --server_id"
        )
    return found[0]


def is_local_address(name: str) -> bool:
    """Whether `name` is an address of this machine: only to such a one can a socket be bound."""
    try:
        addresses = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    except (OSError, ValueError):  # unknown, or no name at all
        return False
    for family, kind, protocol, _, address in addresses:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
                return True
        except OSError:
            continue
    return False


@dataclass(frozen=True)
class _Place:
    """A value of the table, and where it stands."""

    path: Path
    name: str
    value: Any

    def fault(self, text: str) -> UserError:
        """Return the error that names this place."""
        return UserError(f"the rank table {self.path}: {self.name} {text}")

    def get(self, key: str, default: Any = None) -> Any:
        """Look a key up; the value here must be an object."""
        if not isinstance(self.value, dict):
            raise self.fault("must be an object {...}")
        return self.value.get(key, default)

    def places(self, key: str, kind: str) -> list[_Place]:
        """Return the elements of a list that must not be empty."""
        values = self.get(key)
        if not isinstance(values, list) or not values:
            raise self.fault(f"wants a list {key!r} that is not empty, as hccl_tools writes it")
        here = "" if self.name == "the table" else f" of {self.name}"
        return [_Place(self.path, f"{kind} {i}{here}", value) for i, value in enumerate(values, 1)]

    def text(self, key: str) -> str:
        """Return text that must not be empty."""
        value = self.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.fault(f"wants a {key}, and has {shown(value)}")
        return value.strip()

    def address(self) -> str:
        """Return the device_ip; empty when there is none."""
        value = self.get("device_ip") or ""
        if not isinstance(value, str):
            raise self.fault(f"wants text as device_ip, and has {shown(value)}")
        return value

    def number(self, key: str) -> int:
        """Return a whole number from 0 up, which hccl_tools writes as text."""
        value = self.get(key)
        text = str(value) if isinstance(value, (int, str)) else ""
        if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
            raise self.fault(f"wants a whole number as {key}, and has {shown(value)}")
        return int(text)

    def unique(self, key: str, values: Iterable[Any]) -> None:
        """Refuse a value that comes twice."""
        for value, count in Counter(values).items():
            if count > 1:
                raise self.fault(f"has {key} {value} {count} times")


def _server(place: _Place) -> Server:
    name = place.text("server_id")
    devices = [
        Device(entry.number("rank_id"), entry.number("device_id"), entry.address())
        for entry in place.places("device", "device")
    ]
    place.unique("device_id", (device.device_id for device in devices))
    return Server(name, tuple(sorted(devices, key=lambda device: device.rank)))


def _device_target(root: _Place, devices: list[Device], wanted: str | None) -> str:
    told = root.get("device_target")
    if told is None:
        return wanted or ("Ascend" if any(device.device_ip for device in devices) else "CPU")
    if told not in DEVICE_TARGETS:
        raise root.fault(f"has device_target {shown(told)}; it is one of {', '.join(DEVICE_TARGETS)}")
    if wanted not in (None, told):
        raise root.fault(f"is for {told}, but the configuration has device_target {wanted}; let them agree")
    return told
