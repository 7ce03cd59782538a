"""Our side of the benchmark, a worker process: what `train.py` and `eval.py` run, by their own functions."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

import mindspore as ms
import numpy as np

from benchmarks.timing import rate, serve, timed
from src.context import init_context, peak_memory
from src.cpu_kernels.install import install_cpu_kernels
from src.learner import make_learner
from src.model_utils.config import load_config
from src.network import get_network
from src.plan import make_plan


def main() -> None:
    """Serve the case that the command line holds, as JSON."""
    case = json.loads(sys.argv[1])
    runtime = init_context(device_target="CPU", device_id=None, seed=1)
    work = {"train": train, "forward": forward, "pipeline": pipeline}[case["part"]](case, runtime)
    serve(work, lambda: peak_memory(runtime))


def keys(case: dict) -> list[str]:
    """The case's keys of the configuration as arguments."""
    return [f"--{key}={value}" for key, value in case["keys"].items()]


def train(case: dict, runtime):
    """Seconds of a step on one batch."""
    plan = make_plan(load_config(keys(case)), None, runtime)
    step = make_learner(plan).step.set_train()
    images, labels = next(plan.stream.iterate(0, 1))
    return timed(lambda: step(ms.Tensor(images), ms.Tensor(labels))[0].asnumpy())


def forward(case: dict, runtime):
    """Seconds of the logits of one batch."""
    size, batch = case["size"], case["keys"]["batch_size"]
    network = get_network(case["keys"]["backbone"], num_classes=case["classes"], image_size=size)
    install_cpu_kernels(network, wanted=True, device_target=runtime.device_target)
    network.set_train(False)
    images = np.random.default_rng(0).uniform(-1, 1, (batch, 3, size, size)).astype(np.float32)
    return timed(lambda: network(ms.Tensor(images)).asnumpy())


def pipeline(case: dict, runtime):
    """Images a second, of some batches."""
    plan = make_plan(load_config(keys(case)), None, runtime)
    batches = plan.stream.iterate(0, sys.maxsize)
    return rate(batches, plan.batch, case["batches"])


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
