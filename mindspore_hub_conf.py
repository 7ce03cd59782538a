"""The entry of MindSpore Hub: `mindspore_hub.load` calls `create_network`."""

from __future__ import annotations

import numpy as np
from mindspore import nn

from src.checkpoint import load_pretrained, read_record
from src.errors import UserError
from src.network import arguments_of, canonical_name, get_network
from src.vit_map import patch_size


def create_network(name: str, *, num_classes: int | None = None, pretrained: str = "", **kwargs) -> nn.Cell:
    """Build a network of the zoo, with the weights of a file when one is named.

    Args:
        name: any name of the zoo, or Google's, such as `vit_base_patch32`, `ViT-B_16`, `BiT-M-R50x1`.
        num_classes: number of logits; by default that of the file, or 1,000.
        pretrained: `.npz`, `.ckpt` or `.safetensors`; the head comes from it, too, and its record says how to
            build the network and, for a ViT, for which image size.
        **kwargs: arguments of `src.network.get_network`, such as `image_size=384` or `pool="mean"`.

    Raises:
        UserError: an unknown name or argument, or weights that do not fit.
    """
    name = canonical_name(name)
    record = read_record(pretrained) if pretrained else {}
    if record.get("network", name) != name:
        raise UserError(f"{pretrained} holds a {record['network']}, not a {name}")
    arguments = arguments_of(record)
    if "grid" in record:
        arguments["image_size"] = tuple(int(n) * patch_size(name) for n in np.broadcast_to(record["grid"], 2))
    network = get_network(
        name, num_classes=num_classes or record.get("class_num", 1000), **{**arguments, **kwargs}
    )
    if pretrained:
        load_pretrained(network, pretrained)
    return network
