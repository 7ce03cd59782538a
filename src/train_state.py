"""All that training changes, in one file and back: weights, moments, counts, loss scale, weight average."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import mindspore as ms
from mindspore import Parameter, amp, nn

from src.array_io import differences
from src.checkpoint import save_parameters
from src.errors import UserError
from src.weight_average import PREFIX, WeightAverage
from src.weight_file import open_weights

RAW = "raw."  # the weights that are trained, where the file holds their average, too


class TrainState:
    """The arrays of a run under the names that they have in a checkpoint.

    A network's own names stand for the weights that are evaluated: the average when there is one. Whatever
    reads the file (evaluation, export, fine-tuning) finds them there and leaves out the rest.

    Args:
        network (Cell): what is trained.
        optimizer (Optimizer): its moments and its count of steps are kept, not the table of rates.
        scaler (LossScaler): of which a dynamic one is kept; None in full precision.
        dropout_calls (Parameter): what `seed_dropout` returned.
        average (WeightAverage): of `network`; None for none.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizer: nn.Optimizer,
        *,
        scaler: amp.LossScaler | None = None,
        dropout_calls: Parameter | None = None,
        average: WeightAverage | None = None,
    ):
        params = {param.name: param for param in network.get_parameters()}
        self.weights = params
        self.state: dict[str, Parameter] = {}
        if average is not None:
            averaged = {p.name[len(PREFIX) :]: p for p in average.network.get_parameters()}
            self.weights = averaged
            self.state = {RAW + name: params[name] for name in params}
        left_out = {*params, "learning_rate"}
        self.state.update((n, p) for n, p in optimizer.parameters_dict().items() if n not in left_out)
        self.scale: dict[str, Parameter] = {}
        if isinstance(scaler, amp.DynamicLossScaler):
            self.scale = {scaler.scale_value.name: scaler.scale_value, scaler.counter.name: scaler.counter}
            self.state.update(self.scale)
        if dropout_calls is not None:
            self.state[dropout_calls.name] = dropout_calls

    def save(self, path: Path, record: Mapping) -> None:
        """Write everything, and the record. Raises `UserError`."""
        save_parameters({**self.weights, **self.state}, path, record)

    def save_weights(self, path: Path, record: Mapping) -> None:
        """Write the weights that are evaluated, and the record. Raises `UserError`."""
        save_parameters(self.weights, path, record)

    def load(self, path: Path, *, loss_scale: bool = True) -> None:
        """Fill everything from a file that `save` wrote.

        Args:
            path: the file.
            loss_scale: take that of the file, too, and not the one that the scaler was made with.

        Raises:
            UserError: the file is damaged, or of another run and does not fit; nothing is changed then.
        """
        params = {**self.weights, **self.state}
        left_out = set() if loss_scale else {"scale_value", "counter"}
        with open_weights(path) as file:
            wanted = {name: tuple(param.shape) for name, param in params.items() if name not in left_out}
            found = {name: shape for name, shape in file.shapes.items() if name not in left_out}
            problem = differences(wanted, found)
            if problem:
                raise UserError(
                    f"{path} does not fit this run: {problem}; resume with what the run had, or begin a new "
                    "one from its weights (pretrained)"
                )
            for name in wanted:
                param = params[name]
                param.set_data(ms.Tensor(file.read(name), param.dtype))
