"""The entry of MindSpore Hub: `mindspore_hub.load` calls `create_network`."""

from __future__ import annotations

from mindspore import nn

from src.checkpoint import load_pretrained, read_record
from src.network import arguments_of, canonical_name, get_network


def create_network(name: str, *, num_classes: int = 1000, pretrained: str = "", **kwargs) -> nn.Cell:
    """Build a network of the zoo, with the weights of a file when one is named.

    Args:
        name: any name of the zoo, or Google's, such as `vit_base_patch32`, `ViT-B_16`, `BiT-M-R50x1`.
        num_classes: number of logits.
        pretrained: `.npz`, `.ckpt` or `.safetensors`; the head comes from it, too, and its record says how to
            build the network.
        **kwargs: arguments of `src.network.get_network`, such as `image_size=384` or `pool="mean"`.

    Raises:
        UserError: an unknown name or argument, or weights that do not fit.
    """
    arguments = arguments_of(read_record(pretrained)) if pretrained else {}
    network = get_network(canonical_name(name), num_classes=num_classes, **{**arguments, **kwargs})
    if pretrained:
        load_pretrained(network, pretrained)
    return network
