"""From the configuration to the objects of a training run."""

from __future__ import annotations

import logging
from pathlib import Path

from mindspore import nn

from src.checkpoint import load_pretrained
from src.cross_entropy import get_loss
from src.network import arguments_of, get_network
from src.optimizer import get_optimizer
from src.param_rules import check_words, layer_scales, match_frozen

log = logging.getLogger(__name__)

NETWORK_KEYS = ("pool", "gelu", "dropout", "attention_dropout", "drop_path")


def network_of(
    cfg, name: str, weights: Path | None, source: dict, *, class_num: int, image_size, resumed: bool
) -> nn.Cell:
    """The network as the weights and the configuration say, filled, and frozen where it is to be."""
    arguments = arguments_of(source)
    if cfg.replace_head and not resumed:
        arguments.pop("pre_logits", None)  # a fine-tune drops the layer together with the head
    arguments.update({key: cfg[key] for key in NETWORK_KEYS if cfg[key] is not None})
    network = get_network(name, num_classes=class_num, image_size=image_size, **arguments)
    if weights:
        load_pretrained(network, weights, replace_head=cfg.replace_head)
    frozen = match_frozen([p.name for p in network.get_parameters()], cfg.freeze)
    for param in network.get_parameters():
        param.requires_grad = param.name not in frozen
    if frozen:
        log.info("frozen: %d of %d parameters", len(frozen), len(list(network.get_parameters())))
    return network


def optimizer_of(cfg, network: nn.Cell, lr) -> nn.Optimizer:
    """The optimizer of the trainable parameters, whose rate at step i is `lr[i]`."""
    names = [p.name for p in network.get_parameters()]
    check_words(names, cfg.no_weight_decay_filter)
    scales = layer_scales(names, cfg.layer_decay) if cfg.layer_decay < 1 else None
    return get_optimizer(
        cfg.opt,
        network.trainable_params(),
        lr,
        momentum=cfg.momentum,
        beta1=cfg.beta1,
        beta2=cfg.beta2,
        epsilon=cfg.epsilon,
        weight_decay=cfg.weight_decay,
        no_weight_decay=cfg.no_weight_decay_filter,
        gradient_centralization=cfg.gc_flag,
        lr_scales=scales,
    )


def loss_of(cfg) -> nn.Cell:
    """The loss; one that smooths by its name does so unless `use_label_smooth` says no."""
    name = cfg.loss_name or ("ce_smooth_mixup" if cfg.use_label_smooth else "ce")
    smooths = name != "ce" if cfg.use_label_smooth is None else cfg.use_label_smooth
    return get_loss(name, smooth_factor=cfg.label_smooth_factor if smooths else 0.0)
