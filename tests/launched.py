"""Runs the launching scripts on a small script that says where it is, for the tests of launching."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from src.model_utils import launching

ROOT = Path(__file__).parents[1]
STANDALONE, DISTRIBUTE, EVAL = "run_train_standalone.sh", "run_train_distribute.sh", "run_eval.sh"

SCRIPT = """
import json, os, signal, sys, time
rank = os.environ.get("RANK_ID", "0")
names = ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "RANK_TABLE_FILE", "MS_ROLE")
print(json.dumps({"argv": sys.argv[1:], "pid": os.getpid(), "cwd": os.getcwd(),
                  "cores": sorted(os.sched_getaffinity(0)),
                  **{name: os.environ.get(name) for name in names}}))
def wait(): print("waiting"); time.sleep(100)
"""


def prepared(tmp_path):
    """A folder with a space in its name, a configuration, and a table of Ascend devices 5 and 2 here."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "my config.yml").write_text("seed: 1\n")
    devices = [{"device_id": "5", "device_ip": "192.1.27.5", "rank_id": "0"}]
    devices += [{"device_id": "2", "device_ip": "192.1.27.2", "rank_id": "1"}]
    write_table(folder, [{"server_id": "127.0.0.1", "device": devices}])
    return folder


def write_table(folder, servers, **more):
    (folder / "my table.json").write_text(json.dumps({"server_list": servers, **more}))


def start(folder, shell, *words, body="", grace="2", env=None, project=ROOT):
    (folder / "my script.py").write_text(SCRIPT + body)
    environ = {key: value for key, value in os.environ.items() if key not in launching.LEFT_BEHIND}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    return subprocess.Popen(
        ["bash", str(project / "scripts" / shell), "--grace", grace, "--script", "my script.py", *words],
        cwd=folder, env={**environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def run(*args, **kwargs):
    return finish(start(*args, **kwargs))


def distribute(folder, **kwargs):
    return start(folder, DISTRIBUTE, "my table.json", "my config.yml", **kwargs)


def runs(folder, name="train_parallel"):
    return sorted((folder / name).iterdir()) if (folder / name).exists() else []


def said(run_folder, rank):
    return json.loads((run_folder / f"rank_{rank}" / "log").read_text().splitlines()[0])


def has_ended(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # nobody collected its exit code yet
    except psutil.NoSuchProcess:
        return True


def all_ended(run_folder):
    """Whether both ranks have ended, and no other process has the run in its environment."""
    environs = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            environs.append(path.read_bytes())
    others = any(f"={run_folder}\0".encode() in environ for environ in environs)
    return not others and all(has_ended(said(run_folder, rank)["pid"]) for rank in (0, 1))


def wait_until_all_wait(folder):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        logs = [path.read_text() for path in folder.glob("train_parallel/*/rank_*/log")]
        if len(logs) == 2 and all("waiting" in log for log in logs):
            return
        time.sleep(0.1)
    raise AssertionError(logs)
