import numpy as np
import pytest
from mindspore import Tensor

from src.checkpoint import load_pretrained
from src.dropout import seed_dropout
from src.errors import UserError
from src.network import get_network
from src.optimizer import get_optimizer
from src.train_state import TrainState
from src.train_step import get_loss_scaler
from src.weight_average import WeightAverage
from src.weight_file import open_weights


def build(optimizer="adamw", *, average=True, name="vit_nano_patch8", steps=5):
    """A network and the state of its training, every number of which is set to something of its own."""
    net = get_network(name, num_classes=3, image_size=16, **({"drop_path": 0.1} if "vit" in name else {}))
    state = TrainState(
        net,
        get_optimizer(optimizer, net.trainable_params(), np.ones(steps, np.float32)),
        scaler=get_loss_scaler("dynamic", 64),
        dropout_calls=seed_dropout(net, 1, 0),
        average=WeightAverage(net, 0.9, steps) if average else None,
    )
    return net, state


def fill(state, seed):
    rng = np.random.default_rng(seed)
    for param in (*state.weights.values(), *state.state.values()):
        numbers = rng.integers(1, 1000, param.shape) / 8
        param.set_data(Tensor(numbers, param.dtype))


def numbers(state):
    return {name: p.asnumpy().copy() for name, p in {**state.weights, **state.state}.items()}


@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
@pytest.mark.parametrize(("optimizer", "average"), [("adamw", True), ("momentum", False)])
def test_a_file_gives_back_all_that_training_changes(tmp_path, suffix, optimizer, average):
    path = tmp_path / f"last{suffix}"
    net, state = build(optimizer, average=average)
    fill(state, 1)
    saved = numbers(state)
    state.save(path, {"step": 3})
    _, other = build(optimizer, average=average, steps=9)  # the rates are not part of the state
    fill(other, 2)
    other.load(path)
    for name, array in numbers(other).items():
        np.testing.assert_array_equal(array, saved[name], err_msg=name)
        assert array.dtype == saved[name].dtype
    moments = {"adamw": ["adam_m.", "adam_v."], "momentum": ["moments."]}[optimizer]
    wanted = [p.name for p in net.get_parameters()] * (2 if average else 1)
    wanted += [prefix + p.name for prefix in moments for p in net.get_parameters()]
    assert len(saved) == len(wanted) + 4  # step, dropouts, scale, steps without an overflow
    assert {"global_step", "dropout_calls", "scale_value", "counter"} <= saved.keys()


def test_whoever_reads_the_network_gets_the_average(tmp_path):
    net, state = build()
    fill(state, 1)
    state.save(tmp_path / "last.ckpt", {})
    state.save_weights(tmp_path / "best.ckpt", {})
    trained = {p.name: p.asnumpy() for p in net.get_parameters()}
    for name in ("last.ckpt", "best.ckpt"):
        reader = get_network("vit_nano_patch8", num_classes=3, image_size=16)
        load_pretrained(reader, tmp_path / name)
        for param in reader.get_parameters():
            np.testing.assert_array_equal(param.asnumpy(), state.weights[param.name].asnumpy())
            assert (param.asnumpy() != trained[param.name]).any()
    with open_weights(tmp_path / "best.ckpt") as best:
        assert best.shapes.keys() == trained.keys()


OTHERS = {
    "optimizer": {"optimizer": "momentum"},
    "average": {"average": False},
    "network": {"name": "bit_tiny"},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_the_state_of_another_run_is_refused_and_changes_nothing(tmp_path, other):
    _, state = build()
    fill(state, 1)
    state.save(tmp_path / "last.ckpt", {})
    _, changed = build(**other)
    fill(changed, 2)
    before = numbers(changed)
    with pytest.raises(UserError, match="does not fit this run"):
        changed.load(tmp_path / "last.ckpt")
    for name, array in numbers(changed).items():
        np.testing.assert_array_equal(array, before[name])
