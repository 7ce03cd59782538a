"""Strict loading of weights into a network, and saving: `.npz` of Google, `.ckpt` and `.safetensors` alike.

Every Parameter is filled exactly once and every array of the file is used, or nothing is changed. MindSpore's
own `load_param_into_net` only returns what did not match.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, nn

from src.array_io import Weight, differences
from src.convert import google_weights
from src.errors import UserError
from src.npz_file import open_npz
from src.user_files import is_folder, is_regular
from src.vit import ViT
from src.vit_map import resize_position
from src.weight_file import open_weights, write_weights

log = logging.getLogger(__name__)

SUFFIXES = (".npz", ".ckpt", ".safetensors")

# Weight and bias of the classifier: BiT's, ViT's.
HEAD_PARAMS = ("head.conv.weight", "head.conv.bias", "head.weight", "head.bias")

# What training checkpoints, MindSpore's and those of `TrainState`, hold besides the network.
STATE_PREFIXES = (
    "accum.",
    "accumulated.",
    "adam_m.",
    "adam_v.",
    "learning_rate_group",
    "moment1.",
    "moment2.",
    "moments.",
    "raw.",
    "stat.",
    "weight_decay_group",
)
STATE_NAMES = (
    "beta1_power",
    "beta2_power",
    "counter",
    "current_iterator_step",
    "dropout_calls",
    "epoch_num",
    "global_step",
    "last_overflow_iterator_step",
    "learning_rate",
    "loss_scale",
    "momentum",
    "scale_sense",
    "scale_value",
    "step_num",
    "weight_decay",
)


def pretrained_file(pretrained: str, backbone: str) -> Path | None:
    """The file of weights: `pretrained`, or `<backbone>.npz` in it when it is a folder; None for none."""
    if not pretrained:
        return None
    path = Path(pretrained)
    if not is_folder(path):
        return path
    file = path / f"{backbone}.npz"
    if not is_regular(file):
        found = ", ".join(sorted(other.name for other in path.glob("*.npz"))) or "no .npz file"
        raise UserError(f"pretrained is a folder without {file.name}; it holds {found}")
    return file


def load_pretrained(net: nn.Cell, path: str | os.PathLike, *, replace_head: bool = False) -> dict:
    """Fill all Parameters of `net` from a weight file.

    Args:
        net: a network of the zoo.
        path: Google's `.npz`, or a `.ckpt` or `.safetensors` file.
        replace_head: leave out the head of the file and set the head of `net` to zeros, as in fine-tuning.

    Returns:
        The record of the file: what `convert` writes, or an empty dictionary for files of other programs.

    Raises:
        UserError: the file is missing, damaged or does not fit; `net` is unchanged then.
    """
    params = {param.name: param for param in net.get_parameters()}
    with _open(Path(path)) as (weights, record):
        state = [name for name in weights if name not in params and _is_state(name)]
        if state:
            log.debug("%s: left out %d arrays of training state, such as %s", path, len(state), state[0])
        if "pos_embed" in weights and isinstance(net, ViT):
            weights["pos_embed"] = _fit_position(net, weights, record)
        found = {name: weight.shape for name, weight in weights.items() if name not in state}
        wanted = {name: tuple(param.shape) for name, param in params.items()}
        head = [name for name in HEAD_PARAMS if name in params]
        _settle_head(path, head, wanted, found, replace_head)
        problem = differences(wanted, found)
        if problem:
            raise UserError(f"{path} does not fit the network: {problem}")
        used = [name for name in weights if name in wanted]
        for name in used:  # a flipped byte of an .npz shows in reading only: find it before `net` changes
            if not np.isfinite(weights[name].load()).all():
                raise UserError(f"{path}: {name} holds numbers that are not finite; use a sound file")
        for name in used:
            params[name].set_data(ms.Tensor(np.ascontiguousarray(weights[name].load())))
    if replace_head:
        for name in head:
            params[name].set_data(ms.Tensor(np.zeros(params[name].shape, np.float32)))
    return record


def read_record(path: str | os.PathLike) -> dict:
    """Return what a weight file says of itself (network, class_num, normalisation); empty if it says nothing.

    Raises:
        UserError: the file is missing, damaged or something else.
    """
    with _open(Path(path)) as (_, record):
        return record


def save_parameters(params: Mapping[str, Parameter], path: str | os.PathLike, record: Mapping) -> None:
    """Write Parameters, each under its key, and the record as `.ckpt` or `.safetensors`."""
    weights = [Weight(n, tuple(p.shape), p.asnumpy, str(p.dtype).lower()) for n, p in params.items()]
    write_weights(path, weights, record)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[tuple[dict[str, Weight], dict]]:
    """Yield name -> array to be loaded, and the record, of any kind of weight file."""
    if is_folder(path):
        raise UserError(f"{path} is a folder; name the weight file in it, such as {path / 'best.ckpt'}")
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path} is no weight file by its name; wanted is {', '.join(SUFFIXES)}")
    if path.suffix == ".npz":
        with open_npz(path) as npz:
            weights, record = google_weights(npz)
            yield {weight.name: weight for weight in weights}, record
    else:
        with open_weights(path) as file:
            yield {n: Weight(n, s, lambda n=n: file.read(n)) for n, s in file.shapes.items()}, file.record


def _fit_position(net: ViT, weights: Mapping[str, Weight], record: Mapping) -> Weight:
    """The position embedding, resized to the grid of patches of `net` when the file has another."""
    position = weights["pos_embed"]
    if len(position.shape) != 3:
        return position  # the comparison of shapes will say so
    tokens = max(position.shape[1] - ("cls_token" in weights), 0)
    side = math.isqrt(tokens)
    grid = tuple(np.ravel(record.get("grid") or (side, side)))
    if grid == net.grid or len(grid) != 2 or grid[0] * grid[1] != tokens:
        return position
    log.info("position embedding: resized from %d x %d to %d x %d patches", *grid, *net.grid)
    rows = position.shape[1] - tokens + net.grid[0] * net.grid[1]
    shape = (1, rows, position.shape[2])
    return position._replace(shape=shape, load=lambda: resize_position(position.load(), grid, net.grid))


def _settle_head(
    path, head: list[str], wanted: dict[str, tuple], found: dict[str, tuple], replace_head: bool
) -> None:
    """Compare the class counts; take the head out of both tables when it is to be replaced."""
    ours, theirs = (table.get(head[0], (0,))[0] if head else 0 for table in (wanted, found))
    if replace_head:
        dropped = [name for name in found if name.startswith("pre_logits.") and name not in wanted]
        for name in head + dropped:
            wanted.pop(name, None)
            found.pop(name, None)
    elif ours and theirs and ours != theirs:
        raise UserError(
            f"{path} has a head of {theirs} classes and the network one of {ours}; "
            f"build the network with {theirs} classes, or replace the head (replace_head)"
        )
    action = "dropped" if replace_head else "kept"
    log.info("%s: head %s, %d classes in the file and %d in the network", path, action, theirs, ours)


def _is_state(name: str) -> bool:
    return name in STATE_NAMES or name.startswith(STATE_PREFIXES)
