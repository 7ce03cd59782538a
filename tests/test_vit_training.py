import json

import mindspore as ms
import numpy as np
import pytest
from cifar_sample import real_batches
from mindspore import Tensor, nn
from support import GOLDEN
from vit_npz import golden_arrays

from src.checkpoint import load_pretrained
from src.cross_entropy import CrossEntropy
from src.network import get_network
from src.optimizer import get_optimizer
from src.train_step import TrainStep
from src.vit_map import VIT_ARCHITECTURES

CURVE = json.loads((GOLDEN / "vit_train_curve.json").read_text())["vit_adamw"]
BOUND = np.maximum(2e-5, 10 * np.maximum.accumulate(CURVE["float32_difference"]))  # as the file says


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The network after the steps of the curve, with their losses and norms of the gradients."""
    ms.set_context(mode=ms.GRAPH_MODE)
    steps, classes = len(CURVE["loss"]), CURVE["num_classes"]
    images, labels = real_batches(steps, CURVE["batch"])
    images = images.repeat(2, axis=-2).repeat(2, axis=-1)
    net = get_network("vit_tiny_patch16", num_classes=classes, image_size=CURVE["image_size"])
    path = tmp_path_factory.mktemp("npz") / "vit.npz"
    np.savez(path, **golden_arrays(*VIT_ARCHITECTURES["vit_tiny_patch16"], classes, grid=4))
    load_pretrained(net, path)
    optimizer = get_optimizer(
        "adamw",
        net.trainable_params(),
        np.full(steps, CURVE["lr"], np.float32),
        beta1=CURVE["betas"][0],
        beta2=CURVE["betas"][1],
        epsilon=CURVE["eps"],
        weight_decay=0.05,
    )
    loss = nn.WithLossCell(net, CrossEntropy(CURVE["label_smoothing"]))
    step = TrainStep(loss, optimizer, clip_norm=CURVE["clip_global_norm"]).set_train()
    reached = [[float(x.asnumpy()) for x in step(Tensor(i), Tensor(k))] for i, k in zip(images, labels)]
    return net, *np.transpose(reached)


def test_real_images_give_timms_losses(run):
    assert (np.abs(run[1] - CURVE["loss"]) <= BOUND).all()


def test_real_images_give_timms_gradient_norms(run):
    assert (np.abs(run[2] - CURVE["grad_norm"]) <= BOUND).all()


@pytest.mark.parametrize("name", CURVE["final_sum_norm"])
def test_real_images_give_timms_weights(run, name):
    param = run[0].parameters_dict()[name.replace("norm.weight", "norm.gamma")]
    value = param.asnumpy().astype(np.float64)
    reached = [value.sum(), np.linalg.norm(value)]
    np.testing.assert_allclose(reached, CURVE["final_sum_norm"][name], rtol=0, atol=BOUND[-1])
