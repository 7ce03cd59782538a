"""One optimizer step in GRAPH mode, with exact gradient accumulation and a static loss scale."""

from __future__ import annotations

from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from src.errors import UserError


class _Accumulate(nn.Cell):
    """Adds the gradients of a micro-batch, times `sens`, to the accumulators; returns the loss."""

    def __init__(self, network: nn.Cell, weights: ParameterTuple, accumulators: ParameterTuple, sens: float):
        super().__init__(auto_prefix=False)
        self.network = network
        self.weights = weights
        self.accumulators = accumulators
        self.sens = sens
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)

    def construct(self, image, label):
        loss = self.network(image, label)
        grads = self.grad(self.network, self.weights)(image, label, ops.full_like(loss, self.sens))
        for total, grad in zip(self.accumulators, grads):
            ops.assign_add(total, grad)
        return loss


class _Apply(nn.Cell):
    """Hands the accumulated gradients to the optimizer and sets them back to zero."""

    def __init__(self, optimizer: nn.Optimizer, accumulators: ParameterTuple):
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer
        self.accumulators = accumulators

    def construct(self):
        done = self.optimizer(self.accumulators)
        for total in self.accumulators:
            ops.assign(total, ops.zeros_like(total))
        return done


class TrainStep(nn.TrainOneStepCell):
    """Loss, gradients and update of a batch, whole or in `batch_split` micro-batches.

    Splitting saves memory and changes nothing else: the networks hold no batch statistics, so the mean of the
    micro-batches' gradients is the gradient of the batch. The schedule advances once a batch.

    Args:
        network (Cell): (image, label) -> mean loss of the batch.
        optimizer (Optimizer): what updates the weights; built with the same `loss_scale`.
        batch_split (int): number of micro-batches, must divide the batch.
        loss_scale (float): gradients are computed of the loss times this, so that small ones survive float16.

    Inputs:
        image (Tensor): shape (N, 3, H, W).
        label (Tensor): shape (N,) or (N, K).

    Outputs:
        Tensor, the mean loss of the batch before the update, a scalar.
    """

    def __init__(
        self, network: nn.Cell, optimizer: nn.Optimizer, *, batch_split: int = 1, loss_scale: float = 1.0
    ):
        super().__init__(network, optimizer, sens=loss_scale)
        self.batch_split = batch_split
        if batch_split > 1:
            sums = ParameterTuple(
                Parameter(ops.zeros_like(w), name=f"accumulated.{w.name}", requires_grad=False)
                for w in self.weights
            )
            share = loss_scale / batch_split
            self._accumulate = _Accumulate(network, self.weights, sums, share).set_train()
            self._apply = _Apply(optimizer, sums).set_train()

    def __call__(self, image: Tensor, label: Tensor) -> Tensor:
        if self.batch_split == 1:
            return super().__call__(image, label)
        batch = image.shape[0]
        if batch % self.batch_split:
            raise UserError(f"batch_split {self.batch_split} does not divide the batch of {batch} images")
        micro = batch // self.batch_split
        loss = Tensor(0.0)
        for start in range(0, batch, micro):
            loss = loss + self._accumulate(image[start : start + micro], label[start : start + micro])
        self._apply()
        return loss / self.batch_split
