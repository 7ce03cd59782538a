"""What is started where: servers, ports, environment and cores."""

import socket

import pytest
from launched import prepared, write_table

from src.errors import UserError
from src.model_utils.launching import Plan, choose_port, environment, make_plan, msrun_command, share_cores
from src.model_utils.rank_table import Device


@pytest.fixture
def folder(tmp_path):
    return prepared(tmp_path)


def test_a_port_that_was_chosen_and_is_taken_is_refused():
    plan = Plan(2, (Device(0, 0), Device(1, 1)))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is taken"):
            choose_port(plan, port)
        elsewhere = Plan(4, plan.devices, master="192.0.2.1", node_rank=1)
        assert choose_port(elsewhere, port) == port
    assert choose_port(plan, port) == port


def two_servers(folder, counts=(2, 2), shift=0):
    ranks = iter(range(sum(counts)))
    servers = [
        {
            "server_id": f"192.0.2.{number}",
            "device": [{"device_id": str(i + shift), "rank_id": str(next(ranks))} for i in range(count)],
        }
        for number, count in enumerate(counts, 1)
    ]
    write_table(folder, servers, device_target="GPU")
    return str(folder / "my table.json")


def test_several_servers_meet_where_rank_0_is(folder):
    plan = make_plan(two_servers(folder, shift=4), server_id="192.0.2.2")
    assert plan.devices == (Device(2, 4), Device(3, 5))
    command = msrun_command(plan, choose_port(plan), "log", "python")
    assert {"--worker_num=4", "--local_worker_num=2", "--master_addr=192.0.2.1"} < set(command)
    assert {"--node_rank=1", "--master_port=8118", "--join=True", "--log_dir=log"} < set(command)


def test_servers_of_different_size_are_refused_for_msrun(folder):
    with pytest.raises(UserError, match=r"server 192.0.2.1 has the ranks \[0\]"):
        make_plan(two_servers(folder, counts=(1, 3)), server_id="192.0.2.2")


def test_a_single_rank_needs_no_meeting(folder):
    plan = make_plan("1", device_target="CPU")
    assert not plan.through_msrun
    found = environment(plan, {"RANK_TABLE_FILE": "old", "HOME": "/h"}, plan.devices[0])
    assert found == {"HOME": "/h", "RANK_ID": "0", "RANK_SIZE": "1", "DEVICE_ID": "0"}


@pytest.mark.parametrize(
    ("cores", "ranks", "blocks"),
    [
        ([0, 1, 2, 3, 4], 2, [[0, 1], [2, 3, 4]]),
        ([3, 9], 2, [[3], [9]]),
        ([0, 1], 8, [[]] * 8),
        ([0, 1], 1, [[]]),
    ],
)
def test_cores_are_shared_out_if_there_are_enough(cores, ranks, blocks):
    assert share_cores(cores, ranks) == blocks
