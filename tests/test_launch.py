"""The launching scripts: which ranks start, with what place in the world, and every fault is one line."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
from launched import (
    DISTRIBUTE,
    EVAL,
    ROOT,
    STANDALONE,
    distribute,
    finish,
    prepared,
    run,
    runs,
    said,
    write_table,
)

from scripts import launch
from src.model_utils import launching
from src.model_utils.launching import Plan, choose_port
from src.model_utils.rank_table import Device

pytestmark = pytest.mark.alone


@pytest.fixture
def folder(tmp_path):
    return prepared(tmp_path)


def test_each_rank_has_its_place_from_the_table_whatever_the_environment_says(folder):
    process = distribute(
        folder, env={"RANK_SIZE": "8", "RANK_ID": "3", "DEVICE_ID": "3", "MS_ROLE": "MS_SCHED"}
    )
    code, out, err = finish(process)
    assert code == 0, err
    (run_folder,) = runs(folder)
    for rank, device in ((0, "5"), (1, "2")):
        place = said(run_folder, rank)
        assert (place["RANK_ID"], place["RANK_SIZE"], place["DEVICE_ID"]) == (str(rank), "2", device)
        assert place["RANK_TABLE_FILE"] == str(folder / "my table.json")
        assert place["MS_ROLE"] is None
        assert place["cwd"] == str(folder)
        assert place["argv"] == ["--config_path", "my config.yml", "--device_target", "Ascend"]
    assert out == (run_folder / "rank_0" / "log").read_text()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        assert said(run_folder, 0)["cores"] + said(run_folder, 1)["cores"] == cores


def test_only_the_ranks_of_this_server_start_here(folder):
    servers = [
        {"server_id": "192.0.2.1", "device": [{"device_id": "0", "device_ip": "192.2.2.2", "rank_id": "0"}]},
        {"server_id": "node b", "device": [{"device_id": "6", "device_ip": "192.2.2.3", "rank_id": "1"}]},
    ]
    write_table(folder, servers)
    words = ("--server_id", "node b", "my table.json", "my config.yml")
    code, _, err = run(folder, DISTRIBUTE, *words)
    assert code == 0, err
    (run_folder,) = runs(folder)
    assert [path.name for path in run_folder.glob("rank_*")] == ["rank_1"]
    assert said(run_folder, 1)["RANK_SIZE"] == "2"


def test_arguments_after_the_configuration_reach_the_script(folder):
    code, _, err = run(folder, STANDALONE, "my config.yml", "--seed", "7", "--run_name=x")
    assert code == 0, err
    assert said(runs(folder)[0], 0)["argv"] == [
        "--config_path",
        "my config.yml",
        "--seed",
        "7",
        "--run_name=x",
    ]


def test_one_process_takes_its_device_from_the_environment_and_gives_its_code(folder):
    code, out, err = run(folder, STANDALONE, "my config.yml", body="sys.exit(3)", env={"DEVICE_ID": "6"})
    assert code == 3
    assert json.loads(out)["DEVICE_ID"] == "6"
    assert err.splitlines()[-1].startswith("error: rank 0 ended with code 3; its log is ")


def test_one_process_with_rank_size_in_the_environment_is_no_silent_training(folder):
    body = f"sys.path.insert(0, {str(ROOT)!r})\nfrom src.model_utils import local_adapter\n"
    body += "from src.errors import run_main\nsys.exit(run_main(local_adapter.get_place))"
    code, out, _ = run(folder, STANDALONE, "my config.yml", body=body, env={"RANK_SIZE": "8", "RANK_ID": "3"})
    assert code == 1
    assert out.splitlines()[-1].startswith("error: the environment has RANK_SIZE 8, but")


def test_every_run_has_a_folder_of_its_own_and_leaves_the_others_alone(folder):
    assert finish(distribute(folder))[0] == 0
    first = runs(folder)[0]
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    assert finish(distribute(folder))[0] == 0
    assert len(runs(folder)) == 2
    assert {path: path.read_bytes() for path in first.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("words", [("my table.json", "my config.yml"), ("my config.yml",)])
def test_evaluation_takes_a_table_or_one_device(folder, words):
    code, _, err = run(folder, EVAL, *words, "--seed", "2")
    assert code == 0, err
    (run_folder,) = runs(folder, "eval_parallel")
    assert len(list(run_folder.glob("rank_*"))) == len(words)


@pytest.mark.parametrize(
    ("shell", "words", "message"),
    [
        (
            DISTRIBUTE,
            ("my config.yml",),
            "expected RANK_TABLE CONFIG, then --key value, got 1 words; see 'bash",
        ),
        (STANDALONE, ("my table.json", "my config.yml"), "expected CONFIG, then --key value, got 2 words"),
        (EVAL, (), "expected RANK_TABLE CONFIG or CONFIG, then --key value, got 0 words"),
        (DISTRIBUTE, ("my config.yml", "my config.yml"), "is no JSON"),
        (DISTRIBUTE, ("no.json", "my config.yml"), "No such file"),
        (DISTRIBUTE, ("my table.json", "no.yml"), "no.yml"),
        (DISTRIBUTE, ("0", "my config.yml"), "the number of ranks must be 1 or more, got 0"),
        (DISTRIBUTE, ("my table.json", "my config.yml", "--sed", "3"), "sed"),
        (DISTRIBUTE, ("my table.json", "my config.yml", "--device_id", "3"), "device_id 3 is one device"),
        (
            DISTRIBUTE,
            ("--server_id", "b", "my table.json", "my config.yml"),
            "server_id b is not in the rank table",
        ),
        (DISTRIBUTE, ("--master_port", "80", "2", "my config.yml"), "master_port"),
    ],
)
def test_a_fault_is_one_line_before_anything_starts(folder, shell, words, message):
    code, out, err = run(folder, shell, *words)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert message in err
    assert not runs(folder)


@pytest.mark.parametrize("shell", [STANDALONE, DISTRIBUTE, EVAL])
def test_help_names_the_script_and_needs_no_python(shell):
    script = ROOT / "scripts" / shell
    bash = shutil.which("bash")
    done = subprocess.run(
        [bash, script, "--help"], capture_output=True, text=True, env={"PATH": ""}, check=True
    )
    assert done.stdout.startswith(f"usage: bash {script} ")


def test_a_python_without_mindspore_is_one_line(folder, tmp_path):
    project = tmp_path / "a project"
    shutil.copytree(ROOT / "scripts", project / "scripts")
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("__pycache__"))
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    path = f"{python.parent}:{os.environ['PATH']}"
    code, _, err = run(folder, STANDALONE, "my config.yml", project=project, env={"PATH": path})
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "has no mindspore" in err


@pytest.mark.parametrize("ranks", ["2", "my table.json"])
def test_on_a_cpu_msrun_starts_the_ranks(folder, ranks):
    code, out, err = run(folder, DISTRIBUTE, ranks, "my config.yml", "--device_target", "CPU", grace="1")
    assert code == 0, err
    (run_folder,) = runs(folder)
    assert "through msrun" in err
    for rank in (0, 1):
        place = said(run_folder, rank)
        assert (place["RANK_ID"], place["RANK_SIZE"], place["MS_ROLE"]) == (str(rank), "2", "MS_WORKER")
        assert place["DEVICE_ID"] == (str(rank) if ranks == "2" else "52"[rank])
        assert (place["RANK_TABLE_FILE"], place["cwd"]) == (None, str(folder))
    assert json.loads(out)["RANK_ID"] == "0"


def test_two_cpu_workers_meet_through_mindspore(folder):
    device = [{"device_id": str(i), "rank_id": str(i)} for i in range(2)]
    write_table(folder, [{"server_id": "127.0.0.1", "device": device}], device_target="CPU")
    body = """
import mindspore as ms
from mindspore import communication, ops
ms.set_device("CPU")
communication.init()
rank, size = communication.get_rank(), communication.get_group_size()
total = ops.AllReduce()(ms.Tensor([1.5 + rank], ms.float32)).asnumpy()
print("rank", rank, "of", size, "total", total[0])
"""
    code, out, err = finish(distribute(folder, body=body, grace="20"))
    assert code == 0, err
    assert "rank 0 of 2 total 4.0" in out
    assert "rank 1 of 2 total 4.0" in (runs(folder)[0] / "rank_1" / "log").read_text()
    assert said(runs(folder)[0], 1)["argv"][-2:] == ["--device_target", "CPU"]


FAKE_MSRUN = """
import pathlib, sys, time
port, names = sys.argv[1], ["scheduler"] if sys.argv[1] == sys.argv[2] else ["rank_0", "rank_1"]
for name in names:
    pathlib.Path(name).mkdir()
    pathlib.Path(name, "exit_code").write_text("1" if name == "scheduler" else "0")
time.sleep(0 if len(names) == 2 else 100)
"""


def test_a_port_that_is_taken_meanwhile_is_changed(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "my script.py").write_text("")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        ports = iter([taken, choose_port(Plan(1, (Device(0, 0),)))])
        monkeypatch.setattr(launching, "choose_port", lambda plan, port: next(ports))
        monkeypatch.setattr(
            launching, "msrun_command",
            lambda plan, port, log_dir, python: [python, "-c", FAKE_MSRUN, str(port), str(taken)],
        )  # fmt: skip
        assert launch.main(["distribute", "--script", "my script.py", "2", "my config.yml"]) == 0
    assert f"port {taken} was taken by another program, starting again" in capsys.readouterr().err
    assert len(runs(folder)) == 2


def test_more_ranks_than_cores_still_run(folder):
    count = len(os.sched_getaffinity(0)) + 1
    devices = [{"device_id": str(i), "device_ip": f"192.1.27.{i}", "rank_id": str(i)} for i in range(count)]
    write_table(folder, [{"server_id": "127.0.0.1", "device": devices}])
    body = "print(os.environ['OMP_NUM_THREADS'], len(os.sched_getaffinity(0)))"
    code, out, err = finish(distribute(folder, body=body))
    assert code == 0, err
    assert out.splitlines()[-1] == f"1 {count - 1}"
