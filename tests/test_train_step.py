import json
import zipfile

import mindspore as ms
import numpy as np
import pytest
from bit_npz import golden_arrays
from mindspore import Tensor, nn
from PIL import Image
from support import GOLDEN, SHARED, uniform_images

from src.bit import BiT
from src.checkpoint import load_pretrained
from src.cross_entropy import CrossEntropy
from src.errors import UserError
from src.lr_generator import bit_staircase
from src.mixup import mixup
from src.optimizer import get_optimizer
from src.train_step import TrainStep

CURVES = json.loads((GOLDEN / "bit_train_curves.json").read_text())
SAMPLE = SHARED / "data" / "cifar10_sample.zip"


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


def tiny_bit():
    ms.set_seed(3)
    return BiT(units=(1, 1, 1, 1), width=1, num_classes=5)


def step_of(net, lr, split=1):
    optimizer = get_optimizer("momentum", net.trainable_params(), lr, momentum=0.9, weight_decay=0.0)
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
        loss = step(Tensor(mixed), Tensor(soft)).asnumpy()
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
        run = [step(Tensor(uniform_images(16, 21, 30, s)), Tensor(labels[s])).asnumpy() for s in range(5)]
        losses.append(run)
        weights.append([p.asnumpy().copy() for p in net.get_parameters()])
        assert int(step.optimizer.global_step.asnumpy()[0]) == 5  # the schedule advances once a batch
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=2e-6)
    for whole, split in zip(*weights):
        np.testing.assert_allclose(whole, split, rtol=0, atol=1e-6)


@pytest.mark.parametrize("split", [1, 4])
def test_a_loss_scale_changes_no_weight_in_full_precision(split):
    rng = np.random.default_rng(2)
    images, labels = rng.normal(size=(8, 6)).astype(np.float32), rng.integers(0, 4, 8).astype(np.int32)
    start, weights = Tensor(rng.normal(size=(4, 6)), ms.float32), []
    for scale in (1.0, 1024.0):
        net = nn.Dense(6, 4, weight_init=start.copy(), bias_init="zeros")
        optimizer = get_optimizer(
            "momentum",
            net.trainable_params(),
            np.full(3, 0.1, np.float32),
            momentum=0.9,
            weight_decay=0.0,
            loss_scale=scale,
        )
        loss = nn.WithLossCell(net, CrossEntropy())
        step = TrainStep(loss, optimizer, batch_split=split, loss_scale=scale).set_train()
        for _ in range(3):
            step(Tensor(images), Tensor(labels))
        weights.append(net.weight.asnumpy().copy())
    assert np.abs(weights[0] - start.asnumpy()).max() > 0.01
    np.testing.assert_allclose(weights[1], weights[0], rtol=0, atol=1e-6)


def test_a_batch_that_does_not_divide_is_refused():
    step = step_of(nn.Dense(6, 4), np.ones(1, np.float32), split=4)
    with pytest.raises(UserError, match="batch_split 4 does not divide the batch of 10"):
        step(Tensor(np.zeros((10, 6), np.float32)), Tensor(np.zeros(10, np.int32)))


@pytest.fixture(scope="module")
def cifar_batches():
    """Batches of 32 real images as `bit_train_curves.json` describes them: image i is of class i % 10."""
    if not SAMPLE.exists():
        pytest.skip("the sample of CIFAR-10 images is not at hand")
    with zipfile.ZipFile(SAMPLE) as archive:
        names = sorted(
            n for n in archive.namelist() if n.startswith("cifar10/train/") and not n.endswith("/")
        )
        folders = sorted({n.split("/")[2] for n in names})
        by_class = [[n for n in names if n.split("/")[2] == folder] for folder in folders]
        steps, batch = len(CURVES["bit"]["loss"]), CURVES["bit"]["batch"]
        images = np.stack(
            [np.asarray(Image.open(archive.open(by_class[i % 10][i // 10]))) for i in range(steps * batch)]
        )
    images = ((images.astype(np.float32) - 127.5) / 127.5).transpose(0, 3, 1, 2)
    labels = (np.arange(steps * batch) % 10).astype(np.int32)
    return images.reshape(steps, batch, 3, 32, 32), labels.reshape(steps, batch)


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
        losses.append(float(step(Tensor(images), Tensor(labels)).asnumpy()))
    bound = np.maximum(2e-5, 10 * np.maximum.accumulate(CURVES[curve]["float32_difference"]))
    assert (np.abs(np.subtract(losses, CURVES[curve]["loss"])) <= bound).all()
    if curve == "bit":
        rename = {"head.gn.weight": "head.gn.gamma"}
        for name, (total, norm) in golden["final_sum_norm"].items():
            value = net.parameters_dict()[rename.get(name, name)].asnumpy().astype(np.float64)
            reached = [value.sum(), np.linalg.norm(value)]
            np.testing.assert_allclose(reached, [total, norm], rtol=1e-4, atol=float(bound[-1]))
