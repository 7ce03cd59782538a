"""From a checkpoint to a file that is served: MINDIR, ONNX or AIR, checked before it is there."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from PIL import Image

from src import dataset
from src.array_io import open_binary, sha256_of
from src.context import init_context, raise_if_out_of_memory
from src.errors import MissingDataError, UserError
from src.export_place import check_replaceable, move, plain, plain_path
from src.fold import fold
from src.image_io import BadImageError
from src.mindir_v1 import rewrite
from src.network import describe
from src.onnx_graph import build_onnx, write_onnx
from src.pixels import PLAIN
from src.sidecar import sidecar_path, write_sidecar
from src.trained import Trained, open_trained

log = logging.getLogger(__name__)

SUFFIX = {"MINDIR": ".mindir", "ONNX": ".onnx", "AIR": ".air"}
TOLERANCE = 1e-3  # of the largest logit, or absolute below 1
PIXELS = "RGB, (value in 0..255 - image_mean) / image_std, rows from the top"
Runner = Callable[[np.ndarray], np.ndarray]  # images (N, 3, H, W) -> logits (N, K)


@dataclass(frozen=True)
class ExportResult:
    """The exported file, and how far its logits were from the network's; None where nothing was compared."""

    path: Path
    beside: str  # what else was written, in words
    images: int
    largest_difference: float | None
    top1_agreement: float | None


def export(cfg) -> ExportResult:
    """Export the weights of `checkpoint_path`, and write the sidecar beside the result.

    The file is made in a folder of its own, loaded back and compared with the network, and moved to its place
    when it agrees.

    Raises:
        UserError: the weights and the configuration do not belong together, the format cannot be had here, or
            the exported file computes something else.
    """
    runtime = init_context(device_target=cfg.device_target, device_id=cfg.device_id, seed=cfg.seed)
    if cfg.file_format == "AIR" and runtime.device_target != "Ascend":
        raise UserError(
            f"AIR is made on Ascend alone, and this is {runtime.device_target}; export MINDIR or ONNX"
        )
    trained = open_trained(cfg)
    class_num = trained.class_num(cfg)
    if class_num is None:
        raise UserError(f"{trained.path} does not say how many classes it has; set class_num")
    images, size = _images(cfg, trained)
    if not images:
        raise UserError("none of the images to compare on can be read; give another eval_path")
    how = trained.preprocessing(cfg, size)
    crop = how["eval_image_size"]
    target = _target(cfg, trained)

    inputs = _inputs(images, how)
    with _making(target) as made:
        network = trained.network(class_num=class_num, image_size=crop).set_train(False)
        wanted = _by_batches(lambda batch: network(ms.Tensor(batch)).asnumpy(), inputs, cfg.batch_size)
        network = fold(trained.network(class_num=class_num, image_size=crop))
        run = _write(cfg, made, network, trained.name, crop)
        difference = agreement = None
        if run is not None:
            difference, agreement = _compare(wanted, _by_batches(run, inputs, cfg.batch_size), target)
        with open_binary(trained.path, "the checkpoint") as stream:
            digest = sha256_of(stream)
        batch = None if cfg.file_format == "ONNX" else cfg.batch_size  # None: any
        content = {
            "file": target.name,
            "file_format": cfg.file_format,
            "network": trained.name,
            "input": {"shape": [batch, 3, *crop], "type": "float32", "pixels": PIXELS},
            "output": {"shape": [batch, class_num], "type": "float32"},
            "preprocess": how,
            "class_num": class_num,
            "class_names": trained.class_names,
            "checkpoint": {"file": trained.path.name, "sha256": digest},
            "check": {"images": len(inputs), "largest_difference": difference, "top1_agreement": agreement},
            "mindspore": ms.__version__,
        }
        parts = {part: target.parent / part.name for part in made.parent.iterdir()}
        check_replaceable(parts.values())
        sidecar_path(target).unlink(missing_ok=True)  # never an old one beside a new file
        for part, place in parts.items():
            move(part, place)
        write_sidecar(sidecar_path(target), content)
    beside = "".join(f", weights in {part.name} beside it" for part in parts if part != made)
    return ExportResult(target, beside, len(inputs), difference, agreement)


@contextlib.contextmanager
def _making(target: Path) -> Iterator[Path]:
    """Where a file is made before it is moved to `target`; nothing stays there, whatever happens."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as folder:
            yield Path(folder) / target.name
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {error.strerror or error}; choose another place or free space"
        ) from None
    except RuntimeError as error:
        raise_if_out_of_memory(error)
        raise


def _target(cfg, trained: Trained) -> Path:
    """Where the file goes: `file_name`, with its suffix or without, or beside the checkpoint.

    Raises:
        UserError: a folder is there, or the name has the suffix of another format.
    """
    suffix = SUFFIX[cfg.file_format]
    path = Path(cfg.file_name) if cfg.file_name else trained.path.with_suffix(suffix)
    if path.is_dir():
        raise UserError(
            f"file_name {path} is a folder; name the file in it, such as {path / ('net' + suffix)}"
        )
    if path.suffix.lower() in set(SUFFIX.values()) - {suffix}:
        raise UserError(f"file_name ends in {path.suffix}, but file_format {cfg.file_format} is {suffix}")
    path = path if path.suffix.lower() == suffix else path.with_name(path.name + suffix)
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, and the exported file would take its place; choose another file_name"
        )
    return path


def _images(cfg, trained: Trained) -> tuple[list, tuple[int, int] | None]:
    """Up to `check_images` images, evenly spread over the evaluation set, and their usual size."""
    if not (cfg.eval_path or cfg.dataset_path):
        log.warning("no eval_path: the exported file will be checked on random images, not on real ones")
        rng = np.random.default_rng(cfg.seed)
        return [_noise(rng) for _ in range(cfg.check_images)], None
    try:
        samples = dataset.open_eval(cfg, trained.class_names)
    except MissingDataError:
        samples = dataset.open_train(cfg)
    spread = np.unique(np.linspace(0, len(samples) - 1, cfg.check_images).astype(int))
    images = [_readable(samples, int(index), cfg.on_bad_image == "skip") for index in spread]
    return [image for image in images if image is not None], samples.typical_size()


def _readable(samples, index: int, skip: bool) -> Image.Image | None:
    """The image at `index`, or with `skip` the next that can be read; None for none."""
    for candidate in range(index, len(samples)):
        try:
            return samples.image(candidate)
        except BadImageError:
            if not skip:
                raise
    return None


def _noise(rng: np.random.Generator) -> Image.Image:
    """An image of soft random colours."""
    return Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).resize((256, 256))


def _inputs(images: list, how: dict) -> np.ndarray:
    """The images as evaluation makes them, float32 of shape (N, 3, H, W)."""
    transform = dataset.eval_transform(how)
    pixels = np.stack([transform(image) for image in images])
    return PLAIN.normalise(pixels, how["image_mean"], how["image_std"])


def _by_batches(run: Callable[[np.ndarray], np.ndarray], inputs: np.ndarray, batch: int) -> np.ndarray:
    """Logits of all inputs, by a network of a fixed batch; the last batch is filled up with zeros."""
    logits = []
    for start in range(0, len(inputs), batch):
        rows = inputs[start : start + batch]
        padding = np.zeros((batch - len(rows), *rows.shape[1:]), np.float32)
        logits.append(run(np.concatenate([rows, padding]))[: len(rows)])
    return np.concatenate(logits).astype(np.float32)


def _write(cfg, path: Path, network: nn.Cell, name: str, crop: tuple[int, int]) -> Runner | None:
    """Write the file; return what runs it, loaded back, or None where nothing here can."""
    if cfg.file_format == "ONNX":
        weights = {param.name: param.asnumpy() for param in network.get_parameters()}
        write_onnx(build_onnx(name, weights, image_size=crop, arguments=describe(network)), path)
        return _onnx_runner(path)
    image = ms.Tensor(np.zeros((cfg.batch_size, 3, *crop), np.float32))
    with plain_path(path.parent) as folder:
        ms.export(network, image, file_name=str(folder / plain(path.stem)), file_format=cfg.file_format)
    for suffix in (path.suffix, f"_graph{path.suffix}"):  # the latter with a folder of weights beside it
        made = path.with_name(plain(path.stem) + suffix)
        if made.exists():
            made.rename(path)
    if cfg.file_format == "AIR":
        log.warning("an AIR file cannot be run here: its logits were not compared")
        return None
    if cfg.mindir_version == "1":
        rewrite(path, path)
    with plain_path(path.parent) as folder:
        cell = nn.GraphCell(ms.load(str(folder / path.name)))
    return lambda batch: cell(ms.Tensor(batch)).asnumpy()


def _onnx_runner(path: Path) -> Runner:
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(
            f"an ONNX file is checked with onnxruntime ({error}): pip install -r requirements-onnx.txt"
        ) from None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: batch})[0]


def _compare(wanted: np.ndarray, found: np.ndarray, target: Path) -> tuple[float, float]:
    """Largest difference of two sets of logits, and the share of images with the same best class."""
    difference = float(np.abs(found - wanted).max())
    bound = TOLERANCE * max(1.0, float(np.abs(wanted).max()))
    if not difference <= bound:  # not-a-number is no agreement either
        raise UserError(
            f"{target.name} was not kept: its logits differ from the network's by {difference:.2g}, more "
            f"than {bound:.2g}; please report this"
        )
    return difference, float((found.argmax(1) == wanted.argmax(1)).mean())
