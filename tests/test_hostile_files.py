"""Whatever file a user hands over: success or one clean line, in bounded time and memory.

`HOSTILE_ROUNDS=20 pytest tests/test_hostile_files.py` damages twenty times as many files.
"""

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hostile import KINDS, bounded, limits
from hostile_samples import SIDECAR_FULL, image_samples, member, zipped
from PIL import Image

import create_imagenet2012_label
from src.cifar import Cifar, detect_format
from src.image_folder import ImageFolder
from src.infer_result import read_labels, write_labels
from src.model_utils.rank_table import is_local_address
from src.npz_file import open_npz
from src.sidecar import read_sidecar, write_sidecar

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("HOSTILE_ROUNDS", "1"))
FILES = {"config": 100, "network": 100}  # of the others, which are read faster, 400


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_read_or_refused_by_one_line(kind):
    count = ROUNDS * FILES.get(kind, 400)
    command = [sys.executable, str(HERE / "hostile.py"), kind, "0", str(count)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60 + 60 * ROUNDS,
    )
    assert done.returncode == 0, f"seed {done.stdout.split()[-1:]}, {done.returncode}: {done.stderr[-3000:]}"


# What stands in the place of a file

PATHS = (
    "config", "npz", "ckpt", "safetensors", "image", "cifar", "rank_table", "class_map", "sidecar", "labels",
    "result", "zip",
)  # fmt: skip
PLACES = {
    "nothing": lambda path: None,
    "an empty file": Path.touch,
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a giant": lambda path: [path.touch(), os.truncate(path, 2**36)],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", PATHS)
def test_what_is_no_file_to_read_is_refused_at_once(tmp_path, kind, place):
    if (kind, place) in (("cifar", "a giant"), ("zip", "a giant"), ("config", "an empty file")):
        pytest.skip("a matter of its own")
    path = tmp_path / KINDS[kind].name
    PLACES[place](path)
    assert bounded(lambda: KINDS[kind].read(path), memory=2**29)


@pytest.mark.parametrize("kind", PATHS)
def test_a_file_that_nobody_may_read_is_refused(kind):
    Image.init()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "folder", KINDS[kind].name)
        path.parent.mkdir(mode=0o777)
        path.parent.chmod(0o777)
        Path(folder).chmod(0o755)
        path.write_bytes(KINDS[kind].samples()[0])
        path.chmod(0)
        with not_root():
            assert "ermission denied" in bounded(lambda: KINDS[kind].read(path))
        path.chmod(0o444)
        path.parent.chmod(0)
        with not_root():
            line = bounded(lambda: KINDS[kind].read(path))
        path.parent.chmod(0o777)
        assert line


@contextlib.contextmanager
def not_root():
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


# Code in a file


class Runs:
    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return Path.touch, (Path(self.marker),)


def test_a_pickle_never_runs(tmp_path):
    marker = tmp_path / "marker"
    np.savez(tmp_path / "x.npz", a=np.array([Runs(marker)], object))
    (tmp_path / "cifar-10-batches-py").mkdir()
    for folder in (tmp_path, tmp_path / "cifar-10-batches-py"):
        (folder / "data_batch_1").write_bytes(pickle.dumps(Runs(marker)))
    (tmp_path / "x.ckpt").write_bytes(pickle.dumps(Runs(marker)))
    assert "is object" in bounded(lambda: KINDS["npz"].read(tmp_path / "x.npz"))
    assert "is damaged" in bounded(lambda: KINDS["ckpt"].read(tmp_path / "x.ckpt"))
    assert "the binary version is wanted" in bounded(
        lambda: Cifar(tmp_path, name=detect_format(tmp_path), train=True)
    )
    assert not marker.exists()
    pickle.loads(pickle.dumps(Runs(marker)))
    assert marker.exists()


# Names of files

NAMES = [b"\xff\xfe.png", b"a\nerror: b.png", b"\x1b]0;title\x07\x1b[2J.png", "\u202egnp.png".encode()]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_file_is_shown_on_one_line_and_kept_in_tables(tmp_path, name, capsys):
    (tmp_path / "data/cat").mkdir(parents=True)
    path = Path(os.fsdecode(bytes(tmp_path / "data/cat") + b"/" + name))
    path.write_bytes(b"no image")
    samples = ImageFolder(tmp_path / "data")
    line = bounded(lambda: samples.image(0))
    assert "cat/" in line
    assert bounded(lambda: open_npz(path))
    labels = dict(zip(samples.names, samples.labels.tolist()))
    write_labels(tmp_path, labels)
    assert read_labels(tmp_path) == labels
    arguments = ["--img_path", str(tmp_path / "data"), "--label_path", str(tmp_path / "list.json")]
    assert create_imagenet2012_label.main(arguments) == 0
    assert json.loads((tmp_path / "list.json").read_bytes()) == labels
    names = (os.fsdecode(name), "b", "c")
    write_sidecar(tmp_path / "m.json", {**SIDECAR_FULL, "class_names": names})
    assert tuple(read_sidecar(tmp_path / "m")["class_names"]) == names


def test_a_file_that_goes_away_after_it_was_found_is_one_line(tmp_path):
    (tmp_path / "cat").mkdir()
    path = tmp_path / "cat/1.png"
    path.write_bytes(image_samples()[1])
    samples = ImageFolder(tmp_path)
    path.unlink()
    assert "No such file" in bounded(lambda: samples.image(0))

    path = tmp_path / "x.npz"
    path.write_bytes(zipped({"a.npy": member((100_000,), os.urandom(400_000))}))
    with open_npz(path) as npz:
        os.truncate(path, 100)
        path.unlink()
        assert "now cannot be read: No such file" in bounded(lambda: npz.read("a"))


def test_no_text_is_taken_for_an_address_of_this_machine():
    with limits():
        assert not any(map(is_local_address, ("a\0b", "x" * 300, "\ud800", "\x1b[31m", "..")))
