"""A stand-in for `moxing` that keeps its buckets in a folder, a configuration, and ranks as processes."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from easydict import EasyDict

ROOT = Path(__file__).parents[1]

MOXING = """
import os, shutil, time
from pathlib import Path

def _place(url):
    for scheme in ("s3://", "obs://"):
        if url.startswith(scheme):
            return Path(os.environ["BUCKETS"], url[len(scheme):])
    return Path(url)

def exists(url):
    return _place(url).exists()

def is_directory(url):
    return _place(url).is_dir()

def make_dirs(url):
    _place(url).mkdir(parents=True, exist_ok=True)

def _note(verb, source, target):
    with Path(os.environ["BUCKETS"] + ".calls").open("a") as calls:
        calls.write(f"{verb} {source} {target}\\n")
    time.sleep(float(os.environ.get("COPY_SECONDS", "0")))
    if os.environ.get("COPY_FAILS", "nothing") in source:
        raise Exception("obs answers 403\\nforbidden")

def copy_parallel(source, target):
    _note("copy_parallel", source, target)
    shutil.copytree(_place(source), _place(target), dirs_exist_ok=True)

def copy(source, target):
    _note("copy", source, target)
    if "://" in target:
        make_dirs(target.rpartition("/")[0])
    shutil.copyfile(_place(source), _place(target))
"""

RANK = """
import json, os, signal, sys, time
from pathlib import Path
from easydict import EasyDict
from src.errors import run_main
from src.logging import get_logger
from src.model_utils.moxing_adapter import moxing_wrapper

def run(cfg):
    name = os.environ.get("RANK_ID", "0")
    results = Path(cfg.save_checkpoint_path)
    results.mkdir(parents=True, exist_ok=True)
    files = sorted(p.relative_to(cfg.dataset_path).as_posix() for p in Path(cfg.dataset_path).rglob("*.jpg"))
    (results / f"rank_{name}").write_text(" ".join(files))
    if name == os.environ.get("SIGTERM_TO"):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    time.sleep(float(os.environ.get("RUN_SECONDS", "0")))

get_logger()
cfg = EasyDict(json.loads(sys.argv[1]))
sys.exit(run_main(lambda: moxing_wrapper(run)(cfg)))
"""


def write_moxing(root):
    """Write the stand-in below `root`; return what the environment needs for it."""
    package = root / "site" / "moxing"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from moxing import file\n")
    (package / "file.py").write_text(MOXING)
    (root / "buckets").mkdir()
    return {"PYTHONPATH": os.pathsep.join([str(root / "site"), str(ROOT)]), "BUCKETS": str(root / "buckets")}


def config(root, **keys):
    """The keys that the cloud needs, with all paths of the machine below `root`."""
    machine = root / "cache"
    defaults = {"enable_modelarts": True, "data_url": "", "train_url": "", "checkpoint_url": ""}
    defaults.update(upload_epochs=None, copy_minutes=1, save_checkpoint_path=str(root / "outputs"))
    defaults.update(data_path=str(machine / "data"), load_path=str(machine / "model"))
    defaults.update(output_path=str(machine / "train"), file_name="")
    defaults.update(dict.fromkeys(("dataset_path", "eval_path", "pretrained", "checkpoint_path"), ""))
    return EasyDict({**defaults, **keys})


def images(folder):
    """Two files that go by the name of images."""
    for name in ("train/cat/1.jpg", "val/cat/2.jpg"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(name)
    return folder


class Ranks:
    """Processes of one job, each a rank."""

    def __init__(self, root, cfg, environ):
        (root / "tmp").mkdir(exist_ok=True)
        self.markers = root / "tmp"
        self.cfg, self.environ, self.processes = cfg, environ, []

    def start(self, rank, number, **environ):
        place = {"RANK_ID": rank, "RANK_SIZE": number, "MS_SCHED_HOST": "127.0.0.1", "TMPDIR": self.markers}
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-c", RANK, json.dumps(self.cfg)],
            env={key: str(value) for key, value in {**kept, **place, **self.environ, **environ}.items()},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def wait_for_marker(self, word):
        """Wait until the marker says `word`."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if any(word in path.read_text() for path in self.markers.glob("*.lock")):
                return
            time.sleep(0.02)
        raise AssertionError(f"no marker says {word}")

    def wait_until_all_are_there(self):
        """Wait until every process has the marker open."""
        deadline = time.monotonic() + 30
        while not all(self._has_marker(process.pid) for process in self.processes):
            assert time.monotonic() < deadline, "a process does not come to the marker"
            time.sleep(0.02)
        time.sleep(0.2)

    def _has_marker(self, pid):
        files = []
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                files.append(str(link.readlink()))
        return any(file.startswith(str(self.markers)) and file.endswith(".lock") for file in files)

    def ends(self, seconds=20):
        """Exit code and last line of standard error of each process, in the order of their start."""
        outputs = [process.communicate(timeout=seconds)[1].strip().splitlines() for process in self.processes]
        return [(p.returncode, "".join(lines[-1:])) for p, lines in zip(self.processes, outputs)]
