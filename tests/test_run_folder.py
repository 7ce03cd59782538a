import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from src.errors import UserError
from src.run_folder import run_folder

ROOT = Path(__file__).parents[1]


def start(root, name, **keys):
    return run_folder(str(root), name, config="seed: 1\n", class_names=["a", "b"], **keys)


def refused(root, name, text, **keys):
    with contextlib.ExitStack() as stack, pytest.raises(UserError, match=text):
        stack.enter_context(start(root, name, **keys))


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path):
    folders = set()
    for _ in range(5):
        with start(tmp_path / "new", "") as folder:
            folders.add(folder)
            assert {path.name for path in folder.iterdir()} == {".lock", "config.yml", "class_map.json"}
    assert len(folders) == 5


def test_a_named_folder_is_used_once_unless_a_run_goes_on_in_it(tmp_path):
    with start(tmp_path, "mine") as folder:
        pass
    (folder / "config.yml").write_text("precious")
    with (
        pytest.raises(UserError, match="mine exists; choose another run_name, resume"),
        start(tmp_path, "mine"),
    ):
        pass
    assert (folder / "config.yml").read_text() == "precious"
    with start(tmp_path, "mine", again=True) as same:
        assert same == folder
    assert (folder / "config.yml").read_text() == "seed: 1\n"


def test_a_place_that_cannot_hold_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "mine", r"cannot write the folder .*file/mine: .*; choose another")


@pytest.mark.parametrize("place", ["/proc", "/sys"])
def test_a_file_system_that_takes_no_files_is_named(place):
    refused(f"{place}/runs", "mine", f"cannot write the folder {place}/runs/mine: .*; choose another")


def test_what_a_killed_run_left_half_written_goes(tmp_path):
    with start(tmp_path, "mine") as folder:
        pass
    for name in (".last.ckpt.0a1b2c3d.tmp", ".hidden", "notes.tmp", ".other.tmp"):
        (folder / name).write_text("x")
    with start(tmp_path, "mine", again=True):
        assert sorted(path.name for path in folder.iterdir()) == [
            *(".hidden", ".lock", ".other.tmp", "class_map.json", "config.yml", "notes.tmp")
        ]


def test_one_process_at_a_time_and_a_killed_one_leaves_the_folder_free(tmp_path):
    program = (
        "import sys, time; from src.run_folder import run_folder\n"
        f"with run_folder({str(tmp_path)!r}, 'mine', config='', class_names=['a'], again=True):\n"
        "    print('in', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"in\n"
        refused(tmp_path, "mine", r"another process trains in .*mine; wait for it, end it", again=True)
        other.kill()
        other.wait()
        with start(tmp_path, "mine", again=True):
            pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(tmp_path):
    tmp_path.chmod(0o500)
    refused(tmp_path, "mine", "cannot write the folder")
