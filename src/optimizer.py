"""Optimizers by name, with weight decay on kernels alone, and with rates by layer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore.common.initializer import initializer

from src.errors import UserError
from src.param_rules import is_decayed, is_kernel

OPTIMIZERS = ("momentum", "adamw")


class _Optimizer(nn.Optimizer):
    """What the optimizers share: factors of the rate, and gradient centralization that leaves nothing out.

    Everything goes over the parameters by `hyper_map`: a loop in a graph nests one call in the next, and four
    hundred parameters would exceed MindSpore's limit. For the same reason, and for a compilation twenty times
    as fast, the rate is one for all, times a constant, and no parameter group has its own.

    Args:
        groups (list[dict]): MindSpore's, with `params`, `weight_decay` and `grad_centralization`.
        learning_rate (Tensor): float32, one rate a step.
        scales (tuple[float]): the factor of the rate for each parameter, in the order of `parameters`.
    """

    def __init__(self, groups: list[dict], learning_rate: Tensor, scales: tuple[float, ...]):
        super().__init__(learning_rate, groups)
        self.scales = scales

    def _zeros(self, prefix: str) -> ParameterTuple:
        """Return zeros of the parameters' shapes; `ParameterTuple.clone` copies the values first."""
        return ParameterTuple(
            Parameter(initializer("zeros", param.shape, param.dtype), name=f"{prefix}.{param.name}")
            for param in self.parameters
        )

    def gradients_centralization(self, gradients):
        """Take the mean over all axes but the first off each gradient of two or more (arXiv:2004.01461).

        MindSpore's own leaves out, without a word, those whose second axis is no multiple of 16.
        """
        return self.hyper_map(_centred, self.grad_centralization_flags, gradients)


class MomentumUpdate(nn.Cell):
    """moment = momentum * moment + grad; param = param - lr * moment, in place."""

    def __init__(self, momentum: float):
        super().__init__()
        self.momentum = momentum
        self.kernel = ops.ApplyMomentum()

    def construct(self, param, moment, lr, grad):
        """Update one parameter."""
        return self.kernel(param, moment, lr, grad, self.momentum)


class Momentum(_Optimizer):
    """v = momentum * v + g; w = w - lr * v, as torch.optim.SGD; g holds the gradient of the L2 penalty."""

    def __init__(self, groups, learning_rate, scales, *, momentum: float):
        super().__init__(groups, learning_rate, scales)
        self.moments = self._zeros("moments")
        self.update = MomentumUpdate(momentum)

    def construct(self, gradients):
        """Update the parameters and the state."""
        gradients = self.gradients_centralization(self.decay_weight(gradients))
        step = ops.partial(self._step, self.get_lr())
        self.hyper_map(step, self.parameters, self.moments, gradients, self.scales)
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return True

    def _step(self, lr, param, moment, grad, scale):
        return self.update(param, moment, lr * scale, grad)


class AdamWUpdate(nn.Cell):
    """m and v follow the gradient and its square; param -= lr * (m / (sqrt(v) + epsilon) + decay * param)."""

    def __init__(self, beta1: float, beta2: float):
        super().__init__()
        self.beta1, self.beta2 = beta1, beta2
        self.kernel = ops.AdamWeightDecay()

    def construct(self, param, m, v, lr, epsilon, decay, grad):
        """Update one parameter, in place, in one pass."""
        return self.kernel(param, m, v, lr, self.beta1, self.beta2, epsilon, decay, grad)


class AdamW(_Optimizer):
    """Adam with bias correction and decoupled weight decay (arXiv:1711.05101), as torch.optim.AdamW.

    `AdamWUpdate` has no bias correction: lr, epsilon and decay carry it. The corrections of all steps are
    worked out beforehand from the betas as the kernel rounds them, since MindSpore's `expm1` on a CPU is
    right to few digits.

    Args:
        beta1 (float): decay of the mean of the gradients, from 0 to below 1.
        beta2 (float): decay of the mean of their squares, likewise.
        epsilon (float): added to the root of that mean.

    Raises:
        UserError: a beta out of its range; one that is 1 in float32 would leave nothing of the gradient.
    """

    def __init__(self, groups, learning_rate, scales, *, beta1: float, beta2: float, epsilon: float):
        super().__init__(groups, learning_rate, scales)
        self.adam_m = self._zeros("adam_m")
        self.adam_v = self._zeros("adam_v")
        beta1, beta2 = _in_float32("beta1", beta1), _in_float32("beta2", beta2)
        self.epsilon = epsilon
        self.update = AdamWUpdate(beta1, beta2)
        steps = np.arange(1, learning_rate.size + 1)
        root = np.sqrt(1 - beta2**steps)
        self.roots = Tensor(root, ms.float32)
        self.ratios = Tensor((1 - beta1**steps) / root, ms.float32)

    def construct(self, gradients):
        """Update the parameters and the state."""
        root = ops.gather(self.roots, self.global_step, 0).reshape(())
        ratio = ops.gather(self.ratios, self.global_step, 0).reshape(())
        self.hyper_map(
            ops.partial(self._step, self.get_lr() / ratio, self.epsilon * root, ratio),
            self.parameters,
            self.adam_m,
            self.adam_v,
            self.gradients_centralization(gradients),
            self.weight_decay,
            self.scales,
        )
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return True

    def _step(self, lr, epsilon, ratio, param, m, v, grad, decay, scale):
        return self.update(param, m, v, lr * scale, epsilon, decay * ratio, ops.cast(grad, ms.float32))


def get_optimizer(
    name: str,
    parameters: Sequence[Parameter],
    lr: np.ndarray,
    *,
    momentum: float = 0.9,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    no_weight_decay: Collection[str] = (),
    gradient_centralization: bool = False,
    lr_scales: Mapping[str, float] | None = None,
) -> nn.Optimizer:
    """Build an optimizer whose rate at step i is `lr[i]`; its `parameters` keep their order.

    Args:
        name: one of `OPTIMIZERS`.
        parameters: what is trained.
        lr: float32 array, one rate an optimizer step.
        momentum: of `momentum`, between 0 and 1.
        beta1: of `adamw`, as the two that follow; see there.
        beta2: see there.
        epsilon: see there.
        weight_decay: an L2 penalty in the gradient (`momentum`) or decoupled (`adamw`); see `is_decayed` for
            where it applies.
        no_weight_decay: words; a parameter whose name contains one of them is not decayed.
        gradient_centralization: take the mean off the gradient of each kernel first, see `is_kernel`; an L2
            penalty counts as part of the gradient, as in the code of the paper.
        lr_scales: factor of the rate for each parameter by name, see `layer_scales`.

    Raises:
        UserError: an unknown name, or a beta that is no number from 0 to below 1.
    """
    if name not in OPTIMIZERS:
        raise UserError(f"opt wants one of {', '.join(OPTIMIZERS)} and got {name!r}")
    groups = {}
    for param in parameters:
        decay = weight_decay if is_decayed(param.name, param.ndim, no_weight_decay) else 0.0
        centred = gradient_centralization and is_kernel(param.name, param.ndim)
        groups.setdefault((decay, centred), []).append(param)
    groups = [
        {"params": members, "weight_decay": decay, "grad_centralization": centred}
        for (decay, centred), members in groups.items()
    ]
    groups.append({"order_params": list(parameters)})
    scales = tuple(1.0 if lr_scales is None else lr_scales[param.name] for param in parameters)
    arguments = (groups, Tensor(lr, ms.float32), scales)
    if name == "momentum":
        return Momentum(*arguments, momentum=momentum)
    return AdamW(*arguments, beta1=beta1, beta2=beta2, epsilon=epsilon)


def _centred(wanted: bool, grad: Tensor) -> Tensor:
    if wanted and grad.ndim > 1:
        rows = ops.cast(grad, ms.float32).reshape(grad.shape[0], -1)
        grad = (rows - rows.mean(1, keep_dims=True)).reshape(grad.shape)
    return grad


def _in_float32(name: str, beta: float) -> float:
    rounded = float(np.float32(beta))
    if not 0 <= rounded < 1:
        raise UserError(f"{name} wants a number from 0 to below 1 in float32 and got {beta!r}")
    return rounded
