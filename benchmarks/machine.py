"""What was measured on, and whether the machine was free for it."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

OURS = ("mindspore", "onnxruntime", "numpy", "pillow")
THEIRS = ("torch", "timm", "torchvision", "pillow")
VERSIONS = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def heading(torch_python: str | None) -> str:
    """Date, processor, and the versions of both sides."""
    words = [str(datetime.date.today()), _processor(), f"{len(os.sched_getaffinity(0))} cores"]
    words += [f"Python {platform.python_version()}", *_versions(sys.executable, OURS)]
    if torch_python:
        words += ["beside", *_versions(torch_python, THEIRS)]
    return ", ".join(words).replace(", beside,", "; beside")


def busy(seconds: float = 1.0) -> float:
    """How many cores others keep busy while we sleep."""
    before, begun = _idle(), time.monotonic()
    time.sleep(seconds)
    return max(0.0, os.cpu_count() - (_idle() - before) / (time.monotonic() - begun))


def _idle() -> float:
    """Seconds that the cores together have had nothing to do, waiting for a disk included."""
    fields = Path("/proc/stat").read_text(encoding="utf-8").split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor() or platform.machine()


def _versions(python: str, packages: tuple[str, ...]) -> list[str]:
    done = subprocess.run([python, "-c", VERSIONS, *packages], capture_output=True, text=True, check=True)
    return [f"{name} {version}" for name, version in json.loads(done.stdout).items()]
