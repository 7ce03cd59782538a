"""How both workers time what they do, and tell it."""

from __future__ import annotations

import itertools
import json
import time

READ_AHEAD = 6  # batches that either side may have made while nobody waited


def timed(work):
    """Make a function that returns how long `work` took, in seconds."""

    def run() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return run


def rate(batches, batch: int, count: int):
    """Make a function that takes `count` batches and returns images a second, without those read ahead."""

    def run() -> float:
        for _ in itertools.islice(batches, READ_AHEAD):
            pass
        start = time.perf_counter()
        for _ in itertools.islice(batches, count):
            pass
        return count * batch / (time.perf_counter() - start)

    return run


def serve(work, peak_memory) -> None:
    """The worker's side: `work()` returns one number; lines of standard input say how often."""
    work()
    print("[]", flush=True)
    while True:
        try:
            count = int(input())
        except EOFError:
            return
        numbers = [work() for _ in range(count)] if count else [peak_memory()]
        print(json.dumps(numbers), flush=True)
