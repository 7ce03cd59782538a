"""One optimizer step in GRAPH mode, with exact gradient accumulation."""

from __future__ import annotations

from mindspore import ParameterTuple, Tensor, nn, ops

from src.errors import UserError


class _Accumulate(nn.Cell):
    """Adds the gradients of a micro-batch, times `share`, to the accumulators; returns loss * share."""

    def __init__(self, network, weights, accumulators, share):
        super().__init__(auto_prefix=False)
        self.value_and_grad = ops.value_and_grad(network, None, weights)
        self.accumulators = accumulators
        self.share = share
        self.network = network

    def construct(self, image, label):
        loss, grads = self.value_and_grad(image, label)
        for total, grad in zip(self.accumulators, grads):
            ops.assign_add(total, grad * self.share)
        return loss * self.share


class _Apply(nn.Cell):
    """Hands the accumulated gradients to the optimizer and sets them back to zero."""

    def __init__(self, optimizer, accumulators):
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
        optimizer (Optimizer): what updates the weights.
        batch_split (int): number of micro-batches, must divide the batch.

    Inputs:
        image (Tensor): shape (N, 3, H, W).
        label (Tensor): shape (N,) or (N, K).

    Outputs:
        Tensor, the mean loss of the batch before the update, a scalar.
    """

    def __init__(self, network, optimizer, *, batch_split=1):
        super().__init__(network, optimizer)
        self.batch_split = batch_split
        if batch_split > 1:
            accumulators = ParameterTuple(self.weights).clone(prefix="accumulated", init="zeros")
            self._accumulate = _Accumulate(network, self.weights, accumulators, 1.0 / batch_split).set_train()
            self._apply = _Apply(optimizer, accumulators).set_train()

    def __call__(self, image, label):
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
        return loss
