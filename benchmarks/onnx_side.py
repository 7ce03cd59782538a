"""The worker of onnxruntime, with as many threads as cores."""

from __future__ import annotations

import json
import os
import resource
import sys
from contextlib import suppress

import numpy as np
import onnxruntime

from benchmarks.timing import serve, timed


def main() -> None:
    """Serve the model that the command line names, as JSON."""
    case = json.loads(sys.argv[1])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(case["model"], options, providers=["CPUExecutionProvider"])
    shape = (1, 3, case["size"], case["size"])
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    feed = {session.get_inputs()[0].name: images}
    peak = lambda: 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # noqa: E731
    serve(timed(lambda: session.run(None, feed)), peak)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
