"""The other side of the benchmark, a worker process: PyTorch, timm and torchvision, eager, in float32."""

from __future__ import annotations

import json
import os
import resource
import sys
from contextlib import suppress

import timm
import torch
from torch import nn

from benchmarks.timing import rate, serve, timed

NAMES = {"bit_r50x1": "resnetv2_50x1_bit", "vit_base_patch32": "vit_base_patch32_224"}


def main() -> None:
    """Serve the case that the command line holds, as JSON."""
    case = json.loads(sys.argv[1])
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    work = {"train": train, "forward": forward, "pipeline": pipeline}[case["part"]](case)
    serve(work, lambda: 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def train(case: dict):
    """Seconds of a step on one batch."""
    network = timm.create_model(NAMES[case["keys"]["backbone"]], num_classes=case["classes"]).train()
    images, labels = batch_of(case)
    loss_of = nn.CrossEntropyLoss()
    if case["keys"]["opt"] == "adamw":
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, weight_decay=0.03)
    else:
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of(network(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return timed(step)


def forward(case: dict):
    """Seconds of the logits of one batch."""
    network = timm.create_model(NAMES[case["keys"]["backbone"]], num_classes=case["classes"]).eval()
    images, _ = batch_of(case)

    def logits():
        with torch.inference_mode():
            return network(images).numpy()

    return timed(logits)


def batch_of(case: dict):
    """Random images and labels."""
    batch, size = case["keys"]["batch_size"], case["size"]
    return torch.rand(batch, 3, size, size) * 2 - 1, torch.randint(0, case["classes"], (batch,))


def pipeline(case: dict):
    """Images a second, of some batches."""
    from torchvision import datasets, transforms

    steps = [
        transforms.RandomResizedCrop(case["size"], scale=(0.05, 1.0)),
        transforms.RandomHorizontalFlip(),
        *([transforms.AutoAugment()] if case["keys"].get("autoaugment") else []),
        transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.5] * 3),
    ]
    images = datasets.ImageFolder(case["keys"]["dataset_path"], transforms.Compose(steps))
    endless = torch.utils.data.RandomSampler(images, replacement=True, num_samples=10**8)
    batch, workers = case["keys"]["batch_size"], len(os.sched_getaffinity(0))
    loader = torch.utils.data.DataLoader(images, batch, sampler=endless, num_workers=workers)
    return rate(iter(loader), batch, case["batches"])


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
