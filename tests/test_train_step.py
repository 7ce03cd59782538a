import json

import mindspore as ms
import numpy as np
import pytest
from bit_npz import golden_arrays
from cifar_sample import real_batches
from mindspore import Tensor, nn
from support import GOLDEN, uniform_images

from src.bit import BiT
from src.checkpoint import load_pretrained
from src.cross_entropy import CrossEntropy
from src.errors import UserError
from src.lr_generator import bit_staircase
from src.mixup import mixup
from src.network import get_network
from src.optimizer import get_optimizer
from src.train_step import TrainStep, get_loss_scaler

CURVES = json.loads((GOLDEN / "bit_train_curves.json").read_text())


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


def tiny_bit():
    ms.set_seed(3)
    return BiT(units=(1, 1, 1, 1), width=1, num_classes=5)


def step_of(net, lr, split=1):
    optimizer = get_optimizer("momentum", net.trainable_params(), lr)
    return TrainStep(nn.WithLossCell(net, CrossEntropy()), optimizer, batch_split=split).set_train()


def test_the_step_equals_numpy_with_mixup_and_the_staircase():
    """A linear network, whose gradients NumPy can do, through ten steps of schedule, mixup and momentum."""
    rng = np.random.default_rng(0)
    lr = bit_staircase(0.3, [3, 6, 10])
    weight, bias = rng.normal(size=(4, 6)), np.zeros(4)
    net = nn.Dense(6, 4, weight_init=Tensor(weight, ms.float32), bias_init="zeros")
    step = step_of(net, lr)
    velocity = [np.zeros_like(weight), np.zeros_like(bias)]
    for rate in lr:
        images, labels = (
            rng.normal(size=(7, 6)).astype(np.float32),
            np.eye(4, dtype=np.float32)[rng.integers(0, 4, 7)],
        )
        mixed, soft = mixup(images, labels, rng.beta(0.4, 0.4), rng.permutation(7))
        loss = step(Tensor(mixed), Tensor(soft))[0].asnumpy()
        logits = mixed @ weight.T + bias
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        np.testing.assert_allclose(loss, -(soft * np.log(p)).sum(1).mean(), rtol=1e-5)
        grads = [(p - soft).T @ mixed / 7, (p - soft).mean(0)]
        velocity = [0.9 * v + g for v, g in zip(velocity, grads)]
        weight, bias = weight - rate * velocity[0], bias - rate * velocity[1]
    np.testing.assert_allclose(net.weight.asnumpy(), weight, rtol=0, atol=2e-6)
    np.testing.assert_allclose(net.bias.asnumpy(), bias, rtol=0, atol=2e-6)


def test_micro_batches_give_the_weights_of_the_whole_batch():
    lr = np.full(5, 0.003, np.float32)  # far larger rates let rounding grow, in any order of summation
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 5, (5, 16)).astype(np.int32)
    losses, weights = [], []
    for split in (1, 4):
        net = tiny_bit()
        step = step_of(net, lr, split)
        run = [step(Tensor(uniform_images(16, 21, 30, s)), Tensor(labels[s]))[0].asnumpy() for s in range(5)]
        losses.append(run)
        weights.append([p.asnumpy().copy() for p in net.get_parameters()])
        assert int(step.optimizer.global_step.asnumpy()[0]) == 5  # the schedule advances once a batch
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=2e-6)
    for whole, split in zip(*weights):
        np.testing.assert_allclose(whole, split, rtol=0, atol=1e-6)


START = np.random.default_rng(2).normal(size=(4, 6)).astype(np.float32)


def linear_step(**options):
    """A step of a linear network from known weights at rate 0.1, and its weight."""
    net = nn.Dense(6, 4, weight_init=Tensor(START.copy()), bias_init="zeros")
    optimizer = get_optimizer("momentum", net.trainable_params(), np.full(9, 0.1, np.float32))
    return TrainStep(nn.WithLossCell(net, CrossEntropy()), optimizer, **options).set_train(), net.weight


def linear_batch(seed=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(8, 6)).astype(np.float32), rng.integers(0, 4, 8).astype(np.int32)


def linear_gradient(weight, images, labels):
    """Gradients of weight and bias, in float64."""
    logits = images.astype(np.float64) @ weight.T
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    error = (p - np.eye(4)[labels]) / len(labels)
    return error.T @ images, error.sum(0)


@pytest.mark.parametrize("split", [1, 4])
def test_a_loss_scale_changes_no_weight_in_full_precision(split):
    images, labels = linear_batch()
    weights = []
    for scaler in (None, get_loss_scaler("static", 1024.0), get_loss_scaler("dynamic", 1024.0)):
        step, weight = linear_step(batch_split=split, scaler=scaler)
        for _ in range(3):
            step(Tensor(images), Tensor(labels))
        weights.append(weight.asnumpy().copy())
    assert np.abs(weights[0] - START).max() > 0.01
    np.testing.assert_allclose(weights[1], weights[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(weights[2], weights[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"batch_split": 2, "scaler": get_loss_scaler("static", 64.0)}])
def test_clipping_bounds_the_norm_over_all_gradients(options):
    images, labels = linear_batch()
    by_weight, by_bias = linear_gradient(START, images, labels)
    norm = np.sqrt((by_weight**2).sum() + (by_bias**2).sum())
    for bound, factor in ((0.25 * norm, 0.25), (4 * norm, 1.0)):
        step, weight = linear_step(clip_norm=float(bound), **options)
        _, found, _ = step(Tensor(images), Tensor(labels))
        np.testing.assert_allclose(found.asnumpy(), norm, rtol=1e-5)  # before clipping
        np.testing.assert_allclose(weight.asnumpy(), START - 0.1 * factor * by_weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize("kind", ["static", "dynamic", None])
def test_a_step_with_bad_numbers_changes_nothing_but_the_scale(kind, split):
    images, labels = linear_batch()
    scaler = kind and get_loss_scaler(kind, 1024.0)
    step, weight = linear_step(batch_split=split, scaler=scaler, clip_norm=1.0)
    step(Tensor(images), Tensor(labels))
    before = [p.asnumpy().copy() for p in step.optimizer.get_parameters()]
    broken = images.copy()
    broken[5, 2] = np.inf
    loss, norm, _ = step(Tensor(broken), Tensor(labels))
    assert not np.isfinite(loss.asnumpy())
    assert np.isinf(norm.asnumpy())
    for old, param in zip(before, step.optimizer.get_parameters()):  # weights, velocities, global_step
        np.testing.assert_array_equal(param.asnumpy(), old)
    if kind:
        assert scaler.scale_value.asnumpy() == (512.0 if kind == "dynamic" else 1024.0)
    moved = weight.asnumpy().copy()
    _, norm, _ = step(Tensor(images), Tensor(labels))
    assert np.isfinite(norm.asnumpy())
    assert np.abs(weight.asnumpy() - moved).max() > 1e-3


class InfiniteLoss(nn.Cell):
    """A loss that is infinite and has finite gradients all the same."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def construct(self, image, label):
        return self.net(image).sum() + image.max() * 1e38 * 1e38


def test_an_infinite_loss_with_finite_gradients_is_a_bad_step_too():
    net = nn.Dense(6, 4, weight_init=Tensor(START.copy()), bias_init="zeros")
    optimizer = get_optimizer("momentum", net.trainable_params(), np.full(9, 0.1, np.float32))
    loss, norm, _ = TrainStep(InfiniteLoss(net), optimizer).set_train()(
        Tensor(np.ones((2, 6), np.float32)), Tensor(np.zeros(2, np.int32))
    )
    assert np.isinf(loss.asnumpy())
    assert np.isinf(norm.asnumpy())
    np.testing.assert_array_equal(net.weight.asnumpy(), START)


def test_a_dynamic_scale_is_halved_at_an_overflow_and_doubled_after_the_window(monkeypatch):
    monkeypatch.setattr("src.train_step.SCALE_WINDOW", 3)
    images, labels = linear_batch()
    scaler = get_loss_scaler("dynamic", 2.0**67)  # the square of the scaled norm is beyond float32
    step, _ = linear_step(scaler=scaler)
    norms, scales = [], []
    for _ in range(14):
        norms.append(step(Tensor(images), Tensor(labels))[1].asnumpy())
        scales.append(int(np.log2(scaler.scale_value.asnumpy())))
    bad = int(np.isinf(norms).argmin())  # steps until the scale is low enough
    assert 1 <= bad <= 8
    assert scales[: bad + 3] == [*range(66, 66 - bad, -1), 67 - bad, 67 - bad, 68 - bad]
    with pytest.raises(UserError, match="static or dynamic"):
        get_loss_scaler("dynamical", 2.0)


def test_as_many_parameters_as_the_largest_networks_have_compile():
    """A graph that nests a call for each of them does not."""
    net = get_network("vit_nano_patch8", num_classes=2, image_size=8, dim=4, heads=1, mlp_dim=4, depth=32)
    assert len(net.trainable_params()) > 500
    optimizer = get_optimizer("adamw", net.trainable_params(), np.full(2, 0.1, np.float32), weight_decay=0.1)
    loss = nn.WithLossCell(net, CrossEntropy())
    step = TrainStep(loss, optimizer, batch_split=2, clip_norm=1.0, scaler=get_loss_scaler("dynamic", 8.0))
    step.set_train()
    _, norm, _ = step(Tensor(uniform_images(2, 8, 8, 0)), Tensor(np.array([0, 1], np.int32)))
    assert np.isfinite(norm.asnumpy())


def test_a_batch_that_does_not_divide_is_refused():
    step = step_of(nn.Dense(6, 4), np.ones(1, np.float32), split=4)
    with pytest.raises(UserError, match="batch_split 4 does not divide the batch of 10"):
        step(Tensor(np.zeros((10, 6), np.float32)), Tensor(np.zeros(10, np.int32)))


@pytest.fixture(scope="module")
def cifar_batches():
    return real_batches(len(CURVES["bit"]["loss"]), CURVES["bit"]["batch"])


@pytest.mark.parametrize("curve", ["bit", "bit_mixup"])
def test_real_images_give_googles_training_curve(curve, cifar_batches, tmp_path):
    golden, steps = CURVES["bit"], len(CURVES[curve]["loss"])
    np.savez(tmp_path / "tiny.npz", **golden_arrays((1, 1, 1, 1), 1, 10))
    net = BiT(units=(1, 1, 1, 1), width=1, num_classes=10)
    load_pretrained(net, tmp_path / "tiny.npz", replace_head=golden["zero_head"])
    lr = bit_staircase(golden["base_lr"], (100, 200, 300, 400, 500))
    np.testing.assert_allclose(lr[: len(golden["lr"])], golden["lr"], rtol=1e-6)
    step = step_of(net, lr)
    losses = []
    for s in range(steps):
        images, labels = cifar_batches[0][s], cifar_batches[1][s]
        if curve == "bit_mixup":
            partners = np.random.RandomState(100 + s).permutation(32)
            one_hot = np.eye(10, dtype=np.float32)[labels]
            images, labels = mixup(images, one_hot, CURVES[curve]["lambda"][s], partners)
        losses.append(float(step(Tensor(images), Tensor(labels))[0].asnumpy()))
    bound = np.maximum(2e-5, 10 * np.maximum.accumulate(CURVES[curve]["float32_difference"]))
    assert (np.abs(np.subtract(losses, CURVES[curve]["loss"])) <= bound).all()
    if curve == "bit":
        rename = {"head.gn.weight": "head.gn.gamma"}
        for name, (total, norm) in golden["final_sum_norm"].items():
            value = net.parameters_dict()[rename.get(name, name)].asnumpy().astype(np.float64)
            reached = [value.sum(), np.linalg.norm(value)]
            np.testing.assert_allclose(reached, [total, norm], rtol=1e-4, atol=float(bound[-1]))
