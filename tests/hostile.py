"""Reads damaged files of one kind: `PYTHONPATH=. python tests/hostile.py KIND FIRST_SEED COUNT`.

The process has little memory and little time for each file, and ends with code 1 and the seed of the first
file that is neither read nor refused by one clean line; `FIRST_SEED` and a `COUNT` of 1 repeat it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
import zipfile
from pathlib import Path
from typing import Callable, NamedTuple

import numpy as np
from hostile_samples import (
    LABELS,
    RECORD,
    SIDECAR_FULL,
    TABLE,
    archive_samples,
    cifar_samples,
    config_samples,
    image_samples,
    network_samples,
    npy_samples,
    npz_samples,
    texts,
    weight_samples,
    with_record,
)
from mutations import damaged_bytes, damaged_json, damaged_yaml
from PIL import Image

from src.autoaugment import get_augment
from src.cifar import Cifar, detect_format
from src.class_map import read_class_map
from src.convert import google_weights
from src.dataset import eval_batches, eval_transform
from src.errors import run_main
from src.image_io import decode_image, image_size
from src.infer_result import judge, read_labels
from src.logging import get_logger
from src.model_utils.archives import unpack
from src.model_utils.config import load_config
from src.model_utils.rank_table import find_server, read_rank_table
from src.npz_file import open_npz
from src.recipe import eval_size
from src.sidecar import read_sidecar
from src.transforms import RandomCrop, RandomErasing, RandomResizedCrop, TrainTransform
from src.weight_file import open_weights

MEMORY = (
    5 * 2**30
)  # bytes of address space; Pillow and LZMA reserve 4 GiB for a length field that claims them
SECONDS = 10.0  # for one file


class Kind(NamedTuple):
    """A kind of file: samples, a damaged file of them, its name, and what reads it, to the last byte."""

    samples: Callable[[], list]
    damaged: Callable[[random.Random, list], bytes]
    name: str
    read: Callable[[Path], object]
    whole: bool = True  # the samples are whole files


def _bytes(rng: random.Random, samples: list[bytes]) -> bytes:
    return damaged_bytes(rng, rng.choice(samples), rng.choice(samples))


def _json(rng: random.Random, samples: list) -> bytes:
    return damaged_json(rng, json.loads(rng.choice(samples))) if rng.random() < 0.7 else _bytes(rng, samples)


def _yaml(rng: random.Random, samples: list[bytes]) -> bytes:
    return damaged_yaml(rng, rng.choice(samples)) if rng.random() < 0.7 else _bytes(rng, samples)


def read_image(path: Path) -> None:
    """Decode an image and send it through all of training's and evaluation's transforms."""
    image_size(path)
    image = decode_image(path)
    rng = np.random.default_rng(0)
    for number, name in enumerate(("autoaugment", "randaugment", "trivialaugment")):
        geometry = RandomCrop((20, 18), (16, 12)) if number else RandomResizedCrop((16, 12), 0.05, "BICUBIC")
        erasing = RandomErasing(1.0, (120, 110, 100), (60, 50, 40))
        assert TrainTransform(geometry, 0.5, get_augment(name), erasing)(image, rng).shape == (16, 12, 3)
    for ratio in (0, 0.875):
        how = {"eval_image_size": (16, 12), "eval_crop_ratio": ratio, "interpolation": "BICUBIC"}
        assert eval_transform(how)(image, None).shape == (16, 12, 3)


def _zipped_npy(rng: random.Random, samples: list[bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("embedding/kernel.npy", _bytes(rng, samples))
    return stream.getvalue()


def _shapes(rng: random.Random, samples: list) -> bytes:
    """A file with a ViT's or a BiT's names and other shapes; an axis of 0 makes all others free."""
    arrays = dict(rng.choice(samples))
    for name in rng.sample(sorted(arrays), rng.randint(1, 3)):
        shape = list(arrays[name])
        shape[rng.randrange(len(shape))] = 0
        for axis, size in enumerate(shape):
            if size and rng.random() < 0.5:
                shape[axis] = rng.choice((1, 64, 2**20, 2**31, 2**40))
        arrays[name] = rng.choice((shape, shape, shape[1:], [*shape, 1]))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, shape in arrays.items():
            content = io.BytesIO()
            header = {"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}
            np.lib.format.write_array_header_1_0(content, header)
            data = bytes(4 * math.prod(shape)) if math.prod(shape) < 10**6 else b""
            archive.writestr(f"{name}.npy", content.getvalue() + data)
    return stream.getvalue()


def _read_npz(path: Path) -> None:
    with open_npz(path) as npz:
        for name in npz.shapes:
            npz.read(name)


def _read_network(path: Path) -> None:
    with open_npz(path) as npz:
        google_weights(npz)


def _read_weights(path: Path) -> None:
    with open_weights(path) as file:
        assert all(isinstance(array, np.ndarray) for _, array in file)


def _header(rng: random.Random, samples: list[bytes]) -> bytes:
    whole = samples[0]
    length = 8 + int.from_bytes(whole[:8], "little")
    text = damaged_json(rng, json.loads(whole[8:length]))
    return len(text).to_bytes(8, "little") + text + whole[length:]


def _record(rng: random.Random, _samples) -> bytes:
    """A whole `.ckpt` with its checksum, and a damaged record."""
    return with_record(damaged_json(rng, RECORD).decode("utf-8", "surrogatepass"))


def _read_record(path: Path) -> None:
    """What `eval.py` and `train.py` do with a record before they build the network."""
    with open_weights(path) as file:
        record = file.record
    cfg = load_config(["--eval_path=/nowhere"])
    name = record.get("network", "vit_nano_patch8")
    assert isinstance(name, str)
    size = eval_size(cfg, record, name, (30, 40))
    assert all(type(side) is int and side > 0 for side in size)
    for key in ("image_mean", "image_std"):
        if record.get(key) is not None:
            np.array(record[key], np.float32).reshape(3)
    assert all(isinstance(name, str) for name in record.get("class_names") or ())
    np.allclose(record.get("eval_crop_ratio", 0), 0.5)


def _read_sidecar(path: Path) -> None:
    """What `preprocess.py` does with a sidecar but for the images."""
    content = read_sidecar(path.with_suffix(""))
    how = content["preprocess"]
    cfg = load_config(["--batch_size=1"])

    class Two:
        names, labels = ("a", "b"), np.zeros(2, np.int32)

        def __len__(self):
            return 2

        def image(self, _index):
            return Image.new("RGB", (5, 4))

    assert all(np.isfinite(images).all() for images, _ in eval_batches(cfg, Two(), how))


def _read_results(path: Path) -> None:
    labels = read_labels(path.parent)
    results = path.parent / "results"
    for name in LABELS:
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / f"{name}.bin").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    judge(results, labels, 3)


def _read_logits(path: Path) -> None:
    judge(path.parent, {"a": 2}, 300)


def _read_table(path: Path) -> None:
    find_server(read_rank_table(path), is_local=lambda name: name == "10.0.0.1")


def _read_cifar(path: Path) -> None:
    with contextlib.suppress(PermissionError):
        (path.parent / "batches.meta.txt").write_bytes(b"\x1b[2J\xff\n" * 9)
    samples = Cifar(path.parent, name=detect_format(path.parent), train=True)
    for index in range(len(samples)):
        samples.image(index)


def _unpack(path: Path) -> None:
    try:
        unpack(path, path.parent / "target")
    finally:
        with contextlib.suppress(PermissionError):
            left = {entry.name for entry in path.parent.iterdir()} - {path.name, "target"}
            assert not left, left


KINDS = {
    "config": Kind(config_samples, _yaml, "x.yml", lambda path: load_config([f"--config_path={path}"])),
    "npz": Kind(npz_samples, _bytes, "x.npz", _read_npz),
    "npy": Kind(npy_samples, _zipped_npy, "x.npz", _read_npz, whole=False),
    "network": Kind(network_samples, _shapes, "x.npz", _read_network, whole=False),
    "ckpt": Kind(lambda: weight_samples(".ckpt", None), _bytes, "x.ckpt", _read_weights),
    "safetensors": Kind(lambda: weight_samples(".safetensors", None), _bytes, "x.safetensors", _read_weights),
    "header": Kind(lambda: weight_samples(".safetensors", RECORD), _header, "x.safetensors", _read_weights),
    "record": Kind(lambda: [with_record(json.dumps(RECORD))], _record, "x.ckpt", _read_record),
    "image": Kind(image_samples, _bytes, "x.jpg", read_image),
    "cifar": Kind(cifar_samples, _bytes, "data_batch_1.bin", _read_cifar),
    "rank_table": Kind(lambda: texts(TABLE), _json, "table.json", _read_table),
    "class_map": Kind(lambda: texts({"cat": 0, "dog": 1, "eel": 2}), _json, "class_map.json", read_class_map),
    "sidecar": Kind(lambda: texts(SIDECAR_FULL), _json, "x.mindir.json", _read_sidecar),
    "labels": Kind(lambda: texts(LABELS), _json, "labels.json", _read_results),
    "result": Kind(lambda: [np.arange(300, dtype=np.float32).tobytes()], _bytes, "a.bin", _read_logits),
    "tar": Kind(lambda: archive_samples("tar"), _bytes, "x.tar", _unpack),
    "zip": Kind(lambda: archive_samples("zip"), _bytes, "x.zip", _unpack),
}


class LateError(BaseException):
    """Reading took too long. A `TimeoutError` is an `OSError` and would be taken for a bad disk."""


@contextlib.contextmanager
def limits(memory: int = MEMORY, seconds: float = SECONDS):
    """Bound the address space to what it is now and `memory`, and the time; what exceeds them is an error."""

    def late(*_):
        raise LateError(f"longer than {seconds} seconds")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, hard))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def outcome(read: Callable[[], object]) -> str:
    """Call `read` as an entry point does; return the one line of the error, or nothing."""
    logging.getLogger("PIL").addHandler(logging.NullHandler())  # as libtiff, it has its own things to say
    caught, logged = io.StringIO(), io.StringIO()
    get_logger(stream=logged)
    with contextlib.redirect_stderr(caught), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = run_main(read)
    line = caught.getvalue()
    assert all(text.isprintable() for text in logged.getvalue().splitlines()), logged.getvalue()
    assert (code, bool(line)) in ((0, False), (1, True)), (code, line)
    if line:
        assert line.startswith("error: "), line
        assert line.endswith("\n"), line
        assert line[:-1].isprintable(), ascii(line)
        assert len(line) < 5000, len(line)
        assert "enough memory" not in line, line
        assert "MemoryError" not in line, line
    return line


def bounded(read: Callable[[], object], memory: int = MEMORY) -> str:
    """The outcome within limits."""
    with limits(memory):
        return outcome(read)


def main(name: str, first_seed: int, count: int) -> int:
    """Read `count` damaged files; return 1 at the first fault, after saying what it was."""
    kind = KINDS[name]
    samples = kind.samples()
    refused = 0
    with tempfile.TemporaryDirectory() as root:
        if kind.whole:  # it must be read, or refusing the damaged ones would mean nothing
            path = Path(root, kind.name)
            path.write_bytes(samples[0])
            kind.read(path)
        for seed in range(first_seed, first_seed + count):
            sys.stdout.write(f"{seed}\n")
            sys.stdout.flush()
            folder = Path(root, str(seed))
            folder.mkdir()
            path = folder / kind.name
            path.write_bytes(kind.damaged(random.Random(f"{name} {seed}"), samples))
            try:
                refused += bool(bounded(lambda path=path: kind.read(path)))
            except BaseException:
                kept = Path(tempfile.gettempdir(), f"hostile-{name}-{seed}")
                shutil.copy(path, kept)
                sys.stderr.write(f"{kept}: {traceback.format_exc(limit=-6)}")
                return 1
            shutil.rmtree(folder)
    sys.stdout.write(f"{count} files, {refused} refused\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
