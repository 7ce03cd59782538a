"""The zoo: every network by name. The architectures stand in `src/npz_map.py` and `src/vit_map.py`."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping
from functools import partial

import mindspore as ms
from mindspore import amp, nn

from src.bit import BiT
from src.errors import UserError
from src.npz_map import BIT_ARCHITECTURES
from src.vit import ViT
from src.vit_map import VIT_ARCHITECTURES

NETWORKS = {
    **{name: partial(BiT, units=units, width=width) for name, (units, width) in BIT_ARCHITECTURES.items()},
    **{
        name: partial(ViT, patch_size=patch, dim=dim, depth=depth, heads=heads, mlp_dim=mlp_dim)
        for name, (patch, dim, depth, heads, mlp_dim) in VIT_ARCHITECTURES.items()
    },
}

IMAGE_SIZE = 224  # what a ViT is built for when nobody says

VIT_SIZES = {"ti": "tiny", "s": "small", "b": "base", "l": "large", "h": "huge"}  # Google's letters

HALVES = {"float16": ms.float16, "bfloat16": ms.bfloat16}
AMP_LEVELS = ("O0", "O1", "O2", "O3", "auto")


def canonical_name(name: str) -> str:
    """The zoo's name of a network: `BiT-M-R50x1`, `BiT-S-R50x1-ILSVRC2012`, `R50x1_224` are `bit_r50x1`,
    `ViT-B_16` and `ViT-B/16` are `vit_base_patch16`.

    Raises:
        UserError: the zoo has no such network; names the nearest and lists all.
    """
    short = name.lower()
    bit = re.fullmatch(r"(?:bit-[sml]-)?(r\d+x\d+)([-_].+)?", short)
    vit = re.fullmatch(r"vit-(ti|s|b|l|h)[_/](\d+)([-_].+)?", short)
    if bit:
        short = f"bit_{bit[1]}"
    elif vit:
        short = f"vit_{VIT_SIZES[vit[1]]}_patch{vit[2]}"
    if short in NETWORKS:
        return short
    nearest = difflib.get_close_matches(short, NETWORKS, n=1, cutoff=0.0)[0]
    raise UserError(
        f"no network is called '{name}'; did you mean '{nearest}'? There are: {', '.join(NETWORKS)}"
    )


def get_network(
    name: str, *, num_classes: int, image_size: int | tuple[int, int] | None = None, **overrides
) -> nn.Cell:
    """Build a network of the zoo with fresh weights and a zero head.

    Args:
        name: a name of `NETWORKS`, or Google's, such as `BiT-M-R50x1` or `ViT-B_16`.
        num_classes: number of logits, K.
        image_size: side, or (height, width), in pixels. BiT takes any size and needs none; ViT is built for
            one, a multiple of the patch, by default 224.
        **overrides: arguments of the network's Cell besides or instead of the table's, such as `width=2`.

    Returns:
        Cell that turns images of shape (N, 3, H, W) into logits of shape (N, K).

    Raises:
        UserError: an unknown name or override, or a size or class count below 1.
    """
    network = NETWORKS[canonical_name(name)]
    if not isinstance(num_classes, int) or num_classes < 1:
        raise UserError(f"num_classes wants a whole number from 1 up and got {num_classes!r}")
    sides = (image_size,) if isinstance(image_size, int) else tuple(image_size or ())
    if any(not isinstance(side, int) or side < 1 for side in sides) or len(sides) > 2:
        raise UserError(
            f"image_size wants a side or (height, width) in pixels, from 1 up, and got {image_size!r}"
        )
    arguments = set(inspect.signature(network.func).parameters)
    unknown = sorted(set(overrides) - arguments)
    if unknown:
        raise UserError(f"{name} has no argument {', '.join(unknown)}; it has {', '.join(sorted(arguments))}")
    if "image_size" in arguments:
        overrides["image_size"] = image_size or IMAGE_SIZE
    return network(num_classes=num_classes, **overrides)


def describe(network: nn.Cell) -> dict:
    """What a checkpoint must say of a network besides its name; `arguments_of` reads it."""
    if isinstance(network, ViT):
        return {
            "grid": list(network.grid),
            "pool": network.pool,
            "pre_logits": network.pre_logits is not None,
            "gelu": network.gelu,
        }
    return {}


def arguments_of(record: Mapping) -> dict:
    """The arguments of `get_network` that a record of weights holds."""
    return {key: record[key] for key in ("pool", "pre_logits", "gelu") if key in record}


def set_amp_level(network: nn.Cell, level: str, dtype: str = "float16") -> nn.Cell:
    """Mixed precision by MindSpore's rules; norms, softmax and weight standardisation stay in float32.

    Args:
        network: a network of the zoo, before its first call.
        level: one of `AMP_LEVELS`.
        dtype: the half, float16 or bfloat16; see `context.choose_amp_level`.

    Returns:
        The Cell to call; its output is float32.
    """
    if level not in AMP_LEVELS:
        raise UserError(f"amp_level wants one of {', '.join(AMP_LEVELS)} and got {level!r}")
    return amp.auto_mixed_precision(network, level, dtype=HALVES[dtype])
