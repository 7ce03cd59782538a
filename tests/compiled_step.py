"""Compiles a training step; MindSpore writes its graphs where MS_DEV_SAVE_GRAPHS_PATH says.

Usage: python tests/compiled_step.py NETWORK
"""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn

from src.cpu_kernels.install import install_cpu_kernels
from src.cross_entropy import get_loss
from src.network import get_network
from src.optimizer import get_optimizer
from src.train_step import TrainStep


def main(name):
    ms.set_context(mode=ms.GRAPH_MODE)
    vit = name.startswith("vit")
    network = get_network(name, num_classes=3, **({"image_size": 32} if vit else {}))
    lr = np.full(9, 1e-4, np.float32)
    optimizer = get_optimizer("adamw" if vit else "momentum", network.trainable_params(), lr)
    step = TrainStep(nn.WithLossCell(network, get_loss("ce", smooth_factor=0.0)), optimizer).set_train()
    install_cpu_kernels(step, wanted=True, device_target="CPU")
    step.compile(ms.Tensor(np.zeros((3, 3, 32, 32), np.float32)), ms.Tensor(np.zeros(3, np.int32)))


if __name__ == "__main__":
    main(sys.argv[1])
