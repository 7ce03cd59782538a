"""Compares this project with PyTorch, timm and torchvision on this machine's CPU, in turn, in one run."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine, programs, serving
from benchmarks.photos import make_photos
from benchmarks.rounds import Row, Worker, WorkerError, in_turn, table

PARTS = {
    "train": "seconds of a training step, and its peak memory",
    "forward": "seconds of the logits of a batch, and the peak memory",
    "pipeline": "training images a second, from JPEG files of 500 pixels to 224",
    "start": "seconds from `python train.py` to the end of the first step, first and second start",
    "serve": "milliseconds of an image in the C++ program, beside onnxruntime",
    "convert": "convert_npz2ckpt.py on a file of bit_r152x4's size",
}
NETWORKS = {  # name: side in pixels, classes, keys of the training
    "bit_r50x1": (128, 10, {"opt": "momentum", "lr_max": 0.0001}),
    "vit_base_patch32": (224, 1000, {"opt": "adamw", "lr_max": 0.0001, "weight_decay": 0.03, "clip_norm": 0}),
}
TARGETS = {"train": (1.05, 1.05), "forward": (1.05, 1.0)}
QUIET = 0.2  # cores that others may keep busy


class Benchmark:
    """The parts, each of which returns its rows."""

    def __init__(self, arguments, folder: Path):
        self.quick, self.theirs = arguments.quick, arguments.torch_python
        self.rounds = 1 if arguments.quick else arguments.repeats
        self.folder = folder
        self.photos = make_photos(self.folder / "photos", classes=4, per_class=4 if self.quick else 40)
        self.images = Path(arguments.images) if arguments.images else self.photos

    def train(self) -> Iterator[Row]:
        """Steps and their memory."""
        for case in self._cases("train"):
            yield from self._compare(case)

    def forward(self) -> Iterator[Row]:
        """Logits and their memory."""
        for case in self._cases("forward"):
            yield from self._compare(case)

    def pipeline(self) -> Iterator[Row]:
        """Images a second."""
        for augment, reduced in ((False, False), (True, False), (False, True), (True, True)):
            keys = {
                "backbone": "vit_base_patch32", "dataset_path": str(self.images), "batch_size": 32,
                "train_image_size": 224, "crop_min": 0.05, "opt": "momentum", "autoaugment": augment,
                "reduced_decoding": reduced,
            }  # fmt: skip
            case = {"part": "pipeline", "size": 224, "batches": 2 if self.quick else 12, "keys": keys}
            name = "with AutoAugment" if augment else "random resized crop"
            name += ", reduced decoding" if reduced else ""
            ours, theirs, _ = self._times(case, count=1 if self.quick else 2)
            yield Row("pipeline", name, "images/s", ours, theirs, 1.5)

    def start(self) -> Iterator[Row]:
        """First and second start, in a cache folder of its own: the first also compiles the operators."""
        for name in ["bit_tiny"] if self.quick else NETWORKS:
            size, _, keys = NETWORKS.get(name, NETWORKS["bit_r50x1"])
            keys = {**keys, "backbone": name, "dataset_path": self.photos, "batch_size": 8}
            keys |= {"train_image_size": size, "train_resize_size": size, "crop_min": 0}
            keys["schedule_steps"] = "1,999"  # no checkpoint after the first step
            for number in ("first", "second"):
                cache = self.folder / f"cache-{name}"
                seconds = programs.first_step(f"{name}-{number}", self.folder / "runs", keys, cache)
                limit = 5 if number == "second" else None
                yield Row("start", f"{name}, {number}", "s", [seconds], (), limit, limit=True)

    def serve(self) -> Iterator[Row]:
        """Latency of one image at a time."""
        lacks = serving.missing()
        if lacks:
            print(f"serve: left out; it needs {lacks}", file=sys.stderr)
            return
        for name in ["bit_tiny"] if self.quick else NETWORKS:
            folder = self.folder / f"serve-{name}"
            folder.mkdir()
            size, _, keys = NETWORKS.get(name, NETWORKS["bit_r50x1"])
            keys = {**keys, "backbone": name, "dataset_path": self.photos, "batch_size": 4}
            times, peaks = serving.latencies(keys, folder, size=size, rounds=self.rounds)
            ours, theirs = ([1000 * seconds for seconds in side] for side in times)
            yield Row("serve", f"{name}, one image", "ms", ours, theirs, None if self.quick else 1.0)
            yield Row("memory", f"{name}, served", "GB", [peaks[0] / 1e9], [peaks[1] / 1e9])

    def convert(self) -> Iterator[Row]:
        """Seconds, and memory as a multiple of the file."""
        if self.quick or not programs.room_for_conversion(self.folder):
            print("convert: left out; it needs 9 GB of disk and no --quick", file=sys.stderr)
            return
        seconds, peak, size = programs.conversion(self.folder)
        yield Row("convert", f"bit_r152x4, {size / 1e9:.1f} GB", "s", [seconds], (), 60, limit=True)
        yield Row("convert", "its peak memory", "of the file", [peak / size], (), 1.3, limit=True)

    def _cases(self, part: str):
        for (name, (size, classes, training)), target in zip(NETWORKS.items(), TARGETS[part]):
            for batch in (4,) if self.quick else (8, 32):
                keys = {"backbone": name, "batch_size": batch, **training}
                if part == "train":
                    keys |= {
                        "dataset_path": str(self.photos),
                        "class_num": classes,
                        "schedule_steps": "1,999",
                    }
                    keys |= {"train_image_size": size, "train_resize_size": size, "crop_min": 0, "mixup": 0}
                    keys |= {"allow_unused_classes": True}
                yield {"part": part, "size": size, "classes": classes, "keys": keys, "target": target}

    def _compare(self, case: dict) -> Iterator[Row]:
        batch = case["keys"]["batch_size"]
        count = 1 if self.quick else 4 if batch == 8 else 2
        name = f"{case['keys']['backbone']}, batch {batch}"
        ours, theirs, peaks = self._times(case, count=count)
        part, peaks = case["part"], [[peak / 1e9] for peak in peaks]
        yield Row(part, name, "s", ours, theirs, case["target"])
        target = 1.0 if part == "train" else None
        yield Row("memory", f"{part}, {name}", "GB", peaks[0], peaks[1] if theirs else (), target)

    def _times(self, case: dict, *, count: int) -> tuple[list[float], list[float], list[float]]:
        """Numbers of both sides and their peak memory; theirs are empty where they are not installed."""
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker(sys.executable, "benchmarks.ours", case))]
            if self.theirs:
                workers.append(stack.enter_context(Worker(self.theirs, "benchmarks.theirs", case)))
            times = in_turn(workers, rounds=self.rounds, count=count)
            peaks = [worker.peak_memory() for worker in workers]
        return times[0], times[1] if self.theirs else [], peaks


def main(argv=None) -> int:
    """Run the parts that were asked for and print the table."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.json and (
        Path(arguments.json).is_dir() or not Path(arguments.json).absolute().parent.is_dir()
    ):
        parser.error(f"--json {arguments.json} is a folder, or its folder does not exist; name a file")
    if arguments.images and not Path(arguments.images).is_dir():
        parser.error(f"there is no folder --images {arguments.images}")
    if not shutil.which(arguments.torch_python):
        parser.error(f"there is no Python --torch-python {arguments.torch_python}")
    if not _has_torch(arguments.torch_python):
        print(f"{arguments.torch_python} has no torch and timm: our side alone is timed", file=sys.stderr)
        arguments.torch_python = None
    heading, others = machine.heading(arguments.torch_python), machine.busy()
    if others > QUIET:
        heading += f"; other programs kept {others:.1f} cores busy: do not trust these times"
    print(heading, "", sep="\n", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the workers, too
    rows, code = [], 0
    try:
        for row in _measured(arguments):
            ratio = row.ratio()
            words = "" if ratio is None else f", ratio {ratio:.2f}"
            words = f"{row.part}: {row.case}: {median(row.ours):.3g} {row.unit}{words}"
            print(words, file=sys.stderr, flush=True)
            rows.append(row)
    except KeyboardInterrupt:
        print("interrupted; what was measured so far:", file=sys.stderr)
        code = 130
    except WorkerError as error:
        print(error, file=sys.stderr)
        code = 1
    if rows:
        print(table(rows))
    if arguments.json and rows:
        content = {"heading": heading, "rows": [asdict(row) for row in rows]}
        Path(arguments.json).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return code


def _measured(arguments) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        benchmark = Benchmark(arguments, Path(folder))
        for part in arguments.only or PARTS:
            try:
                yield from getattr(benchmark, part)()
            except WorkerError as error:
                raise WorkerError(f"{part} failed: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parts = "; ".join(f"{name}: {what}" for name, what in PARTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__} A ratio above 1 says that we are faster, or smaller. Parts: {parts}."
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help="these parts; default: all")
    parser.add_argument(
        "--repeats", type=_positive, default=4, help="rounds of A B A B that count; default: 4"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small batches, one round: whether it runs at all"
    )
    parser.add_argument("--images", help="photographs for the pipeline, a folder a class; default: made ones")
    parser.add_argument(
        "--torch-python",
        default=sys.executable,
        help="the Python that has torch, timm and torchvision; default: this one",
    )
    parser.add_argument("--json", help="file for all numbers")
    return parser


def _positive(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def _has_torch(python: str) -> bool:
    done = subprocess.run(
        [python, "-c", "import torch, timm; print('both')"], capture_output=True, check=False
    )
    return done.stdout.endswith(b"both\n")


if __name__ == "__main__":
    sys.exit(main())
