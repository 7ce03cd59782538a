"""Keeps the compiled training step for the next start of the same configuration, on CPUs.

MindSpore's own cache takes whatever graph it finds in its folder: it looks at the sources, not at the
configuration, and it counts the graphs of a process. So each run's have a folder named after all that shapes
them, the cache is on until the first step is done, but for no evaluation, and for the first run of a process.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import mindspore as ms
from mindspore.train import Callback

from src.user_cache import user_cache

ENABLE, PATH = "MS_COMPILER_CACHE_ENABLE", "MS_COMPILER_CACHE_PATH"  # what MindSpore reads
SOURCE = Path(__file__).parent
LAST_FILE = "*.hash"  # that MindSpore writes when a graph is whole
KEPT = 20  # graphs; those that were not used for longest go


class CompileCache(Callback):
    """Turns the cache on for the first step; leaves users alone who have set MindSpore's own variables.

    A new graph is written beside its place and moved there when the step has run: none is half-written.

    Args:
        facts: all that shapes the graph besides sources and versions; compared by their text.
    """

    _used = False  # by a run of this process

    def __init__(self, facts: Iterable[object]):
        super().__init__()
        self._place = user_cache("graphs") / _key(facts)
        self._made: Path | None = None
        self._on = False

    def on_train_begin(self, run_context) -> None:
        """Turn it on. What cannot be written is not kept."""
        if CompileCache._used or ENABLE in os.environ or PATH in os.environ or not _starts_from_source():
            return
        folder = self._place
        if not folder.is_dir():
            try:
                folder.parent.mkdir(parents=True, exist_ok=True)
                folder = self._made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
            except OSError:
                return
        os.environ.update({ENABLE: "1", PATH: str(folder)})
        self._on = CompileCache._used = True

    def on_train_step_end(self, run_context) -> None:
        """Turn it off after the first step, and keep the graph."""
        if self._on and self._made is not None:
            if any(self._made.rglob(LAST_FILE)):  # a full disk has none
                with contextlib.suppress(OSError):  # another process was faster
                    self._made.rename(self._place)
        elif self._on:
            with contextlib.suppress(OSError):
                os.utime(self._place)
        if self._on:
            _forget_oldest(self._place.parent)
        self.close()

    def close(self) -> None:
        """Turn it off; a graph that was not kept is removed."""
        if not self._on:
            return
        self._on = False
        for name in (ENABLE, PATH):
            os.environ.pop(name, None)
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)


def _starts_from_source() -> bool:
    """Whether there is a script that MindSpore can read: not under `python -c` or in a notebook."""
    try:
        ast.parse(Path(sys.argv[0]).read_bytes())
    except (OSError, SyntaxError, ValueError, IndexError):
        return False
    return True


def _key(facts: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCE.rglob("*.py")):
        digest.update(path.read_bytes())
    for fact in (ms.__version__, *facts):
        digest.update(repr(fact).encode() + b"\0")
    return digest.hexdigest()[:32]


def _forget_oldest(folder: Path) -> None:
    with contextlib.suppress(OSError):
        graphs = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in graphs[:-KEPT]:
            shutil.rmtree(path, ignore_errors=True)
