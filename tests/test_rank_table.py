"""Rank tables: what hccl_tools writes is understood, and every fault is one line that names it."""

import json
from pathlib import Path

import pytest

from src.errors import UserError
from src.model_utils.rank_table import Device, find_server, is_local_address, read_rank_table


def table(*servers, **more):
    """Each server is (server_id, [(device_id, rank), ...]); values are text, as hccl_tools writes them."""
    server_list = []
    for number, (server_id, devices) in enumerate(servers):
        entries = [
            {"device_id": str(device), "device_ip": f"192.{number + 1}.27.{device}", "rank_id": str(rank)}
            for device, rank in devices
        ]
        server_list.append({"server_id": server_id, "device": entries, "host_nic_ip": "reserve"})
    count = str(len(server_list))
    return {
        "version": "1.0",
        "server_count": count,
        "server_list": server_list,
        "status": "completed",
        **more,
    }


ONE = table(("10.1.2.3", [(4, 0), (5, 1), (7, 2)]))
TWO = table(("10.1.2.4", [(0, 2), (1, 3)]), ("10.1.2.3", [(3, 1), (2, 0)]))


@pytest.fixture
def read(tmp_path):
    def read(content, device_target=None):
        path = tmp_path / "rank table.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_rank_table(path, device_target)

    return read


def test_a_table_of_one_server_gives_its_devices_and_ranks(read):
    result = read(ONE)
    assert (result.size, result.device_target) == (3, "Ascend")
    (server,) = result.servers
    assert server.server_id == "10.1.2.3"
    assert server.devices[2] == Device(rank=2, device_id=7, device_ip="192.1.27.7")


def test_servers_and_devices_come_in_the_order_of_their_ranks(read):
    result = read(TWO)
    assert result.size == 4
    assert [server.server_id for server in result.servers] == ["10.1.2.3", "10.1.2.4"]
    found = [[(d.rank, d.device_id) for d in server.devices] for server in result.servers]
    assert found == [[(0, 2), (1, 3)], [(2, 0), (3, 1)]]


def test_numbers_need_not_be_text(read):
    content = {
        "server_list": [{"server_id": "a", "device": [{"device_id": 6, "rank_id": 0}]}],
        "server_count": 1,
    }
    assert read(content).servers[0].devices == (Device(0, 6),)


def without_addresses():
    content = json.loads(json.dumps(ONE))
    for device in content["server_list"][0]["device"]:
        del device["device_ip"]
    return content


@pytest.mark.parametrize(
    ("content", "wanted", "target"),
    [
        (ONE, None, "Ascend"),
        (ONE, "CPU", "CPU"),
        (without_addresses(), None, "CPU"),
        (without_addresses(), "Ascend", "Ascend"),
        ({**without_addresses(), "device_target": "GPU"}, None, "GPU"),
    ],
)
def test_the_device_target_is_told_or_inferred(read, content, wanted, target):
    assert read(content, wanted).device_target == target


def test_workers_of_one_address_are_no_fault_on_a_cpu(read):
    content = json.loads(json.dumps(ONE))
    for device in content["server_list"][0]["device"]:
        device["device_ip"] = "127.0.0.1"
    assert read(content, "CPU").size == 3


def changed(change, source=ONE):
    content = json.loads(json.dumps(source))
    change(content)
    return content


def on_device(index, **values):
    return changed(lambda content: content["server_list"][0]["device"][index].update(values))


FAULTS = {
    "no JSON": ('{"server_list": [}', "is no JSON: Expecting value in line 1, column 18"),
    "empty file": ("", "is no JSON"),
    "deep": ("[" * 100_000, "is no JSON"),
    "list": ([1], "must be an object"),
    "no servers": ({"status": "completed"}, "wants a list 'server_list' that is not empty"),
    "empty servers": (table(), "wants a list 'server_list' that is not empty"),
    "server is text": ({"server_list": ["10.0.0.1"]}, "server 1 must be an object"),
    "no devices": (table(("a", [])), "server 1 wants a list 'device' that is not empty"),
    "no server_id": (changed(lambda c: c["server_list"][0].pop("server_id")), "server 1 wants a server_id"),
    "unfinished": ({**ONE, "status": "initializing"}, "has status 'initializing'"),
    "server_count": ({**ONE, "server_count": "2"}, "has server_count '2', but 1 in server_list"),
    "rank twice": (on_device(1, rank_id="2"), "has rank_id 2 2 times"),
    "rank left out": (
        on_device(2, rank_id="3"),
        "has 3 devices, whose rank_id must run from 0 up, but none has 2",
    ),
    "rank is a word": (on_device(1, rank_id="one"), "device 2 of server 1 wants a whole number as rank_id"),
    "rank below 0": (on_device(1, rank_id=-1), "device 2 of server 1 wants a whole number as rank_id"),
    "rank is true": (on_device(1, rank_id=True), "wants a whole number as rank_id, and has True"),
    "no rank": (
        changed(lambda c: c["server_list"][0]["device"][2].pop("rank_id")),
        "device 3 of server 1 wants",
    ),
    "device twice": (on_device(1, device_id="4"), "server 1 has device_id 4 2 times"),
    "address twice": (on_device(1, device_ip="192.1.27.4"), "has device_ip 192.1.27.4 2 times"),
    "server twice": (table(("a", [(0, 0)]), ("a", [(1, 1)])), "has server_id a 2 times"),
    "unknown target": (
        {**ONE, "device_target": "TPU"},
        "has device_target 'TPU'; it is one of CPU, GPU, Ascend",
    ),
}


@pytest.mark.parametrize(("content", "message"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_table_is_refused_by_name_and_place(read, content, message):
    with pytest.raises(UserError) as error:
        read(content)
    assert "rank table.json" in str(error.value)
    assert message in str(error.value)


def test_a_table_for_another_device_target_is_refused(read):
    with pytest.raises(UserError, match="is for CPU, but the configuration has device_target Ascend"):
        read({**ONE, "device_target": "CPU"}, "Ascend")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path, reason in ((tmp_path / "no.json", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UserError, match=reason):
            read_rank_table(path)


def test_text_that_is_no_unicode_is_refused(tmp_path):
    path = Path(tmp_path / "t.json")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="no JSON text"):
        read_rank_table(path)


def test_this_server_is_found_by_its_address(read):
    assert find_server(read(TWO), is_local=lambda name: name == "10.1.2.4").devices[0].rank == 2


def test_a_named_server_is_found_without_its_address(read):
    assert find_server(read(TWO), "10.1.2.4", is_local=lambda name: False).devices[0].rank == 2


@pytest.mark.parametrize(
    ("server_id", "local", "message"),
    [
        (None, (), "this server .* is not in the rank table .* has 10.1.2.3, 10.1.2.4"),
        ("10.1.2.5", ("10.1.2.3",), "server_id 10.1.2.5 is not in the rank table"),
        (None, ("10.1.2.3", "10.1.2.4"), "10.1.2.3, 10.1.2.4 .* choose by --server_id"),
    ],
)
def test_no_server_or_several_are_refused(read, server_id, local, message):
    with pytest.raises(UserError, match=message):
        find_server(read(TWO), server_id, is_local=lambda name: name in local)


def test_addresses_of_this_machine_are_told_from_others():
    assert is_local_address("127.0.0.1")
    assert is_local_address("localhost")
    assert not is_local_address("192.0.2.1")  # kept free for documentation
    assert not is_local_address("no such name")
