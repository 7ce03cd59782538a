"""One optimizer step in GRAPH mode: exact accumulation, loss scale, clipping, nothing from bad numbers."""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, amp, nn, ops

from src.errors import UserError
from src.weight_average import PREFIX, WeightAverage

SCALE_FACTOR, SCALE_WINDOW = 2, 2000  # of a dynamic loss scale, as MindSpore's DynamicLossScaleManager


def get_loss_scaler(kind: str, scale: float) -> amp.LossScaler:
    """Build what keeps float16 gradients from vanishing.

    Args:
        kind: `static`, or `dynamic`: halved at an overflow, doubled after 2,000 steps without one.
        scale: the (first) factor of the loss, from 1 up.

    Raises:
        UserError: an unknown kind, or a scale below 1.
    """
    if kind not in ("static", "dynamic") or scale < 1:
        raise UserError(f"a loss scale is static or dynamic and starts at 1; got {kind!r} and {scale}")
    if kind == "static":
        return amp.StaticLossScaler(scale)
    return amp.DynamicLossScaler(scale, SCALE_FACTOR, SCALE_WINDOW)


# A loop over the gradients in a graph nests one call in the next, and a few hundred exceed MindSpore's limit:
# HyperMap does not.


class SquareSum(nn.Cell):
    """The sum of the squares of a tensor of any shape, a scalar."""

    def construct(self, grad):
        rows = grad.reshape(grad.shape[0], -1)  # a sum over long rows is 14 times faster than over all axes
        return (rows * rows).sum(-1).sum()


def _times(factor: Tensor, grad: Tensor) -> Tensor:
    return grad * factor


def _add(share: float, total: Parameter, grad: Tensor) -> Tensor:
    return ops.assign_add(total, grad * share)


def _approach(share: Tensor, average: Parameter, weight: Parameter) -> Tensor:
    return ops.assign_add(average, share * (weight - average))


def _clear(total: Parameter) -> Tensor:
    return ops.assign(total, ops.zeros_like(total))


class _Update(nn.Cell):
    """Takes the scale off the gradients, clips them and updates the weights; overflowed ones are dropped.

    Inputs:
        loss (Tensor): a scalar.
        grads (tuple): gradients of the loss times the scale, in the order of the optimizer's parameters.

    Outputs:
        Tensor, a float32 scalar: the global norm of the gradients before clipping. It is infinite when it or
        the loss is not finite; nothing was updated then.
    """

    def __init__(
        self,
        optimizer: nn.Optimizer,
        scaler: amp.LossScaler | None,
        clip_norm: float | None,
        average: WeightAverage | None,
    ):
        super().__init__(auto_prefix=False)
        self.averages = None
        if average is not None:
            params = average.network.parameters_dict()
            self.averages = ParameterTuple(params[PREFIX + p.name] for p in optimizer.parameters)
            self.shares = Tensor(average.shares)
        self.optimizer = optimizer
        self.scaler = scaler
        self.clip_norm = clip_norm
        self.square_sum = SquareSum()
        self.over = ops.HyperMap()

    def construct(self, loss, grads):
        squares = ops.addn(self.over(self.square_sum, grads))
        norm = ops.sqrt(squares)
        factor = None
        if self.scaler is not None:
            factor = 1.0 / self.scaler.scale_value
            norm = norm * factor
        if self.clip_norm is not None:
            clip = ops.minimum(self.clip_norm / norm, 1.0)
            factor = clip if factor is None else factor * clip
        if factor is not None:
            grads = self.over(ops.partial(_times, factor), grads)
        finite = ops.logical_and(ops.isfinite(norm), ops.isfinite(loss))
        if finite:
            if self.averages is None:
                self.optimizer(grads)
            else:
                share = ops.gather(self.shares, self.optimizer.global_step, 0).reshape(())
                self.optimizer(grads)
                self.over(ops.partial(_approach, share), self.averages, self.optimizer.parameters)
        if self.scaler is not None:
            self.scaler.adjust(finite)
        return ops.select(finite, norm, ops.full_like(norm, float("inf")))


class _Accumulate(nn.Cell):
    """Adds the gradients of a micro-batch, divided by the number of them, to the sums; returns the loss."""

    def __init__(self, gradients: nn.Cell, sums: ParameterTuple, parts: int):
        super().__init__(auto_prefix=False)
        self.gradients = gradients
        self.sums = sums
        self.share = 1.0 / parts
        self.over = ops.HyperMap()

    def construct(self, image, label):
        loss, grads = self.gradients(image, label)
        return ops.depend(loss, self.over(ops.partial(_add, self.share), self.sums, grads))


class _Apply(nn.Cell):
    """Hands the summed gradients to the update and sets them back to zero; returns what `TrainStep` does."""

    def __init__(self, ranks: nn.Cell, reducer: nn.Cell, update: _Update, sums: ParameterTuple):
        super().__init__(auto_prefix=False)
        self.ranks = ranks
        self.reducer = reducer
        self.update = update
        self.sums = sums
        self.over = ops.HyperMap()

    def construct(self, loss):
        loss, stop = self.ranks(loss)
        norm = self.update(loss, self.reducer(self.sums))
        return loss, ops.depend(norm, self.over(_clear, self.sums)), stop


class _Ranks(nn.Cell):
    """What all ranks know in each step: the mean of their losses, and how many of them ask for the end."""

    def __init__(self, device_num: int):
        super().__init__(auto_prefix=False)
        self.stop = Parameter(Tensor(0.0, ms.float32), name="stop", requires_grad=False)
        self.reduce = ops.AllReduce() if device_num > 1 else nn.Identity()
        self.share = 1.0 / device_num

    def construct(self, loss):
        both = self.reduce(ops.stack((loss * self.share, self.stop * 1.0)))  # stack takes no bare Parameter
        return both[0], both[1]


class _Gradients(nn.Cell):
    """The loss of a batch, and the gradients of the loss times the scale; the next call drops others."""

    def __init__(
        self,
        network: nn.Cell,
        weights: ParameterTuple,
        scaler: amp.LossScaler | None,
        dropout_calls: Parameter | None,
    ):
        super().__init__(auto_prefix=False)
        self.dropout_calls = dropout_calls
        self.network = network
        self.weights = weights
        self.scaler = scaler
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)

    def construct(self, image, label):
        loss = self.network(image, label)
        sens = ops.ones_like(loss)
        if self.scaler is not None:
            sens = sens * self.scaler.scale_value
        grads = self.grad(self.network, self.weights)(image, label, sens)
        if self.dropout_calls is not None:
            loss = ops.depend(loss, ops.assign_add(self.dropout_calls, 1))
        return loss, grads


class TrainStep(nn.TrainOneStepCell):
    """Loss, gradients and update of a batch, whole or in `batch_split` micro-batches.

    Splitting saves memory and changes nothing else: the networks hold no batch statistics, so the mean of the
    micro-batches' gradients is the gradient of the batch. The schedule advances once a batch, and not with a
    batch whose numbers are not finite.

    Args:
        network (Cell): (image, label) -> mean loss of the batch.
        optimizer (Optimizer): what updates the weights.
        batch_split (int): number of micro-batches, must divide the batch.
        scaler (LossScaler): see `get_loss_scaler`; None for full precision.
        clip_norm (float): bound of the gradients' global norm (arXiv:1211.5063); None for none.
        dropout_calls (Parameter): what `seed_dropout` returned.
        average (WeightAverage): follows the weights; None for none.
        device_num (int): ranks that train together, after `init_context`; loss, gradients and norm are then
            those of all their batches together.

    Inputs:
        image (Tensor): shape (N, 3, H, W).
        label (Tensor): shape (N,) or (N, K).

    Outputs:
        Three float32 scalars: the mean loss of the batch before the update, the global norm of its gradients
        before clipping, and how many ranks asked for the end before this step. When loss or norm are not
        finite, the norm is infinite and nothing was updated.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizer: nn.Optimizer,
        *,
        batch_split: int = 1,
        scaler: amp.LossScaler | None = None,
        clip_norm: float | None = None,
        dropout_calls: Parameter | None = None,
        average: WeightAverage | None = None,
        device_num: int = 1,
    ):
        super().__init__(network, optimizer)
        self.batch_split = batch_split
        self.gradients = _Gradients(network, self.weights, scaler, dropout_calls)
        self.update = _Update(optimizer, scaler, clip_norm, average)
        self.ranks = _Ranks(device_num)
        if batch_split > 1:
            sums = ParameterTuple(
                Parameter(ops.zeros_like(w), name=f"accumulated.{w.name}", requires_grad=False)
                for w in self.weights
            )
            self._accumulate = _Accumulate(self.gradients, sums, batch_split).set_train()
            self._apply = _Apply(self.ranks, self.grad_reducer, self.update, sums).set_train()

    def construct(self, image, label):
        loss, grads = self.gradients(image, label)
        loss, stop = self.ranks(loss)
        return loss, self.update(loss, self.grad_reducer(grads)), stop

    def ask_to_stop(self) -> None:
        """Let the outputs of the next step tell all ranks that this one asks for the end."""
        self.ranks.stop.set_data(Tensor(1.0, ms.float32))

    def __call__(self, image: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        if self.batch_split == 1:
            return super().__call__(image, label)
        batch = image.shape[0]
        if batch % self.batch_split:
            raise UserError(f"batch_split {self.batch_split} does not divide the batch of {batch} images")
        micro = batch // self.batch_split
        loss = Tensor(0.0)
        for start in range(0, batch, micro):
            loss = loss + self._accumulate(image[start : start + micro], label[start : start + micro])
        return self._apply(loss / self.batch_split)
