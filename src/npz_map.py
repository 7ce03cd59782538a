"""Google's BiT `.npz` files: which network a file holds, and which of our Parameters each of its arrays is.

Its names are those of google-research/big_transfer, `resnet/block1/unit01/a/standardized_conv2d/kernel`, with
kernels as (height, width, in, out). The S, M, ILSVRC2012, VTAB and distilled files differ in the size of the
head; in some a convolution has a number, `standardized_conv2d_1` (big_vision's `bit_paper.py` knows it, too).
Our names are those of the public MindSpore port.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from src.array_io import differences
from src.errors import UserError

BIT_ARCHITECTURES = {  # name -> (units of the four blocks, width)
    "bit_tiny": ((1, 1, 1, 1), 1),  # for tests and the quickstart; not Google's
    "bit_r50x1": ((3, 4, 6, 3), 1),
    "bit_r50x3": ((3, 4, 6, 3), 3),
    "bit_r101x1": ((3, 4, 23, 3), 1),
    "bit_r101x3": ((3, 4, 23, 3), 3),
    "bit_r152x2": ((3, 8, 36, 3), 2),
    "bit_r152x4": ((3, 8, 36, 3), 4),
}
GROUPS, GROUP_NORM_EPSILON, STANDARDISE_EPSILON = 32, 1e-5, 1e-10  # of BiT
GOOGLE_MEAN = GOOGLE_STD = (127.5, 127.5, 127.5)  # of pixels 0..255, for Google's networks
GOOGLE_NORMALISATION = {"image_mean": GOOGLE_MEAN, "image_std": GOOGLE_STD}

_CONV, _NORM = "standardized_conv2d/kernel", "group_norm"
_ROOT_KERNEL, _HEAD_KERNEL = f"resnet/root_block/{_CONV}", "resnet/head/conv2d/kernel"
_OIHW = (3, 2, 0, 1)  # the axes of a kernel (H, W, I, O) in our order
_OTHERS = (  # part of a key -> what a file with such keys is
    ("Transformer/", "a Vision Transformer"),
    ("conv_root", "a ResNet with big_vision's names"),
    ("resnet/", "a BiT network that lacks arrays"),
)


@dataclass(frozen=True)
class BitArchitecture:
    """Units of the four blocks, multiplier of all channels, number of classes."""

    units: tuple[int, int, int, int]
    width: int
    class_num: int

    @property
    def name(self) -> str:
        """The zoo's name.

        Raises:
            UserError: the zoo has no such network.
        """
        for name, known in BIT_ARCHITECTURES.items():
            if known == (self.units, self.width):
                return name
        found = f"a BiT of {self.units} units and width {self.width}"
        raise UserError(f"{found} is none of the known networks: {', '.join(BIT_ARCHITECTURES)}")

    @property
    def record(self) -> dict:
        """What a file of weights must say besides the name: nothing."""
        return {}


def infer_bit(shapes: Mapping[str, tuple]) -> BitArchitecture:
    """Tell the architecture from the names and shapes of a file, which need not be complete.

    Raises:
        UserError: the file holds something else; says what.
    """
    keys = _plain_keys(shapes)
    root, head = shapes.get(keys.get(_ROOT_KERNEL)), shapes.get(keys.get(_HEAD_KERNEL))
    if root is None or head is None:
        lacking = _ROOT_KERNEL if root is None else _HEAD_KERNEL
        raise UserError(f"wanted a BiT file and found {_guess(shapes)}: missing {lacking}")
    if len(root) != 4 or root[3] % 64 or not root[3] or len(head) != 4:
        raise UserError(f"wanted a BiT file, but {_ROOT_KERNEL} is {root} and {_HEAD_KERNEL} is {head}")
    units = [1, 1, 1, 1]
    for key in keys:
        unit = re.match(r"resnet/block([1-4])/unit(\d\d)/", key)
        if unit:
            units[int(unit[1]) - 1] = max(units[int(unit[1]) - 1], int(unit[2]))
    return BitArchitecture(tuple(units), root[3] // 64, head[3])


def map_bit(shapes: Mapping[str, tuple]) -> tuple[BitArchitecture, list[tuple]]:
    """Return the architecture, and for each array (key in the file, our name, axes or None, our shape).

    Raises:
        UserError: the file holds not all of a BiT, or more than that; says what.
    """
    keys = _plain_keys(shapes)
    architecture = infer_bit(shapes)
    params = bit_params(architecture)
    wanted = {keys.get(key, key): _file_shape(shape, axes) for key, _, axes, shape in params}
    problem = differences(wanted, shapes)
    if problem:
        wanted_bit = f"a BiT of {architecture.units} units and width {architecture.width}"
        raise UserError(f"wanted {wanted_bit}, but {problem}")
    return architecture, [(keys[key], *rest) for key, *rest in params]


def bit_params(architecture: BitArchitecture) -> list[tuple]:
    """List all arrays of a BiT as (Google's key, our name, axes for `transpose` or None, our shape)."""
    params = []

    def conv(key: str, name: str, out_channels: int, in_channels: int, size: int) -> None:
        params.append((key, name, _OIHW, (out_channels, in_channels, size, size)))

    def norm(key: str, name: str, channels: int) -> None:
        for leaf in ("gamma", "beta"):
            params.append((f"{key}/{_NORM}/{leaf}", f"{name}.{leaf}", None, (channels,)))

    channels = 64 * architecture.width
    conv(_ROOT_KERNEL, "root.conv.weight", channels, 3, 7)
    for block, count in enumerate(architecture.units):
        mid = 64 * architecture.width * 2**block
        for unit in range(1, count + 1):
            key, name = f"resnet/block{block + 1}/unit{unit:02d}", f"body.block{block + 1}.unit{unit:02d}"
            if unit == 1:
                conv(f"{key}/a/proj/{_CONV}", f"{name}.downsample.weight", 4 * mid, channels, 1)
            parts = (("a", channels, mid, 1), ("b", mid, mid, 3), ("c", mid, 4 * mid, 1))
            for index, (letter, before, after, size) in enumerate(parts, start=1):
                norm(f"{key}/{letter}", f"{name}.gn{index}", before)
                conv(f"{key}/{letter}/{_CONV}", f"{name}.conv{index}.weight", after, before, size)
            channels = 4 * mid
    norm("resnet", "head.gn", channels)
    conv(_HEAD_KERNEL, "head.conv.weight", architecture.class_num, channels, 1)
    params.append(("resnet/head/conv2d/bias", "head.conv.bias", None, (architecture.class_num,)))
    return params


def _plain_keys(shapes: Mapping[str, tuple]) -> dict[str, str]:
    """Return name without the number of a convolution -> name in the file."""
    keys = {}
    for key in shapes:
        keys.setdefault(re.sub(r"/standardized_conv2d_\d+/", "/standardized_conv2d/", key), key)
    return keys


def _file_shape(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    return shape if axes is None else tuple(shape[axes.index(axis)] for axis in range(len(axes)))


def _guess(shapes: Mapping[str, tuple]) -> str:
    for part, family in _OTHERS:
        if any(part in key for key in shapes):
            return family
    return f"{len(shapes)} arrays such as '{min(shapes)}'"
