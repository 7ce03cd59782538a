"""The network of a run with all that trains it: step, loss scale, average, and the state to be saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mindspore import nn
from mindspore.amp import LossScaler

from src.cpu_kernels.install import install_cpu_kernels
from src.dropout import seed_dropout
from src.from_config import loss_of, network_of, optimizer_of
from src.network import set_amp_level
from src.plan import Plan
from src.train_state import TrainState
from src.train_step import TrainStep, get_loss_scaler
from src.weight_average import WeightAverage


@dataclass(frozen=True)
class Learner:
    """What is trained, and what it is evaluated by.

    Attributes:
        network: whose weights are trained.
        evaluated: images -> logits, of the average of the weights where there is one.
        step: (images, labels) -> see `TrainStep`.
        scaler: of the loss; None in full precision.
        state: all that training changes.
        kernels: file of the compiled operators; None for MindSpore's.
    """

    network: nn.Cell
    evaluated: nn.Cell
    step: TrainStep
    scaler: LossScaler | None
    state: TrainState
    kernels: Path | None


def make_learner(plan: Plan) -> Learner:
    """Build all of it, with the weights or the state that the plan starts from."""
    cfg, amp_level = plan.cfg, plan.amp_level
    network = network_of(
        cfg,
        plan.name,
        plan.weights,
        plan.source,
        class_num=plan.class_num,
        image_size=plan.recipe.train_image_size,
        resumed=plan.start is not None,
    )
    average = WeightAverage(network, cfg.ema_decay, len(plan.lr)) if cfg.ema_decay else None
    forward = set_amp_level(network, amp_level, cfg.amp_dtype)
    evaluated = set_amp_level(average.network, amp_level, cfg.amp_dtype) if average else forward
    scaler = None if amp_level == "O0" else get_loss_scaler(cfg.loss_scale_mode, cfg.loss_scale)
    optimizer = optimizer_of(cfg, network, plan.lr)
    dropout_calls = seed_dropout(network, cfg.seed, plan.runtime.rank)
    step = TrainStep(
        nn.WithLossCell(forward, loss_of(cfg)),
        optimizer,
        batch_split=cfg.batch_split,
        scaler=scaler,
        clip_norm=plan.recipe.clip_norm or None,
        dropout_calls=dropout_calls,
        average=average,
        device_num=plan.runtime.device_num,
    )
    kernels = install_cpu_kernels(
        step,
        evaluated,
        wanted=cfg.cpu_kernels,
        device_target=plan.runtime.device_target,
        device_num=plan.runtime.device_num,
        amp_level=amp_level,
    )
    state = TrainState(network, optimizer, scaler=scaler, dropout_calls=dropout_calls, average=average)
    if plan.start:
        state.load(plan.start.path, loss_scale=not plan.changed & {"loss_scale", "loss_scale_mode"})
    return Learner(network, evaluated, step, scaler, state, kernels)
