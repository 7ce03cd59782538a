"""Builds the C++ of `csrc` once a machine, into the user's cache folder.

The library's folder is named after all that shapes it: source, flags, compiler, the processor's features (the
code is made for them) and MindSpore's version, if there is one.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.metadata
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from src.user_cache import user_cache

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent / "csrc"
COMPILERS = ("g++", "c++", "clang++")
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
    "-fopenmp-simd", "-fvisibility=hidden", "-shared", "-fPIC", "-pthread",
)  # fmt: skip
LIBRARY = "libcpu_kernels.so"
SUM = ".sha256"
_told: set[str] = set()
_failed: dict[Path, BuildError] = {}  # in this process, which does not try again


class BuildError(Exception):
    """Why there is no library: one line, or the compiler's own lines."""


def library() -> Path:
    """Return the built library, absolute; builds it if this machine has none yet.

    Raises:
        BuildError: there is no compiler, it failed, or the cache folder cannot be written.
    """
    compiler = _compiler()
    target = user_cache("kernels") / _key(compiler) / LIBRARY
    if _is_whole(target):
        return target
    if target in _failed:
        raise _failed[target]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait for the one that builds
            if not _is_whole(target):
                log.info(
                    "cpu_kernels: compiling the operators, once for this machine, into %s", target.parent
                )
                _build(compiler, target)
    except OSError as error:
        _failed[target] = BuildError(f"cannot write {target.parent}: {error.strerror or error}")
    except BuildError as error:
        _failed[target] = error
    if target in _failed:
        raise _failed[target]
    return target


def _is_whole(target: Path) -> bool:
    """Whether the library is there, with the checksum that was noted when it was built."""
    try:
        return _checksum(target) == target.with_suffix(SUM).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return False


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load(path: Path) -> ctypes.CDLL:
    """Load what `library` returned. Raises `BuildError` if it cannot be loaded."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"cannot load {path}: {error}; remove it") from None


def tell(error: BuildError) -> None:
    """Say in the log that there are no compiled operators, and why; the same reason once a process."""
    if str(error) not in _told:
        _told.add(str(error))
        log.warning("cpu_kernels: MindSpore's, Pillow's and NumPy's slower operators are used: %s", error)


def _compiler() -> list[str]:
    """The words of the environment's CXX, or the path of the first compiler that is there."""
    asked = shlex.split(os.environ.get("CXX", ""))
    if asked:
        if not shutil.which(asked[0]):
            raise BuildError(f"the environment's CXX, {asked[0]}, was not found")
        return asked
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if not found:
        raise BuildError(f"there is no C++ compiler ({', '.join(COMPILERS)}, or the environment's CXX)")
    return [found]


def _key(compiler: list[str]) -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    version = _run([*compiler, "--version"]).stdout
    for fact in (*FLAGS, *compiler, version, _mindspore(), platform.machine(), _processor()):
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()[:16]


def _mindspore() -> str:
    """The version of MindSpore, which is not imported for that: the input pipeline does without it."""
    try:
        return importlib.metadata.version("mindspore")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    """What the processor can do; a home folder may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.split(":")[0].strip() in ("flags", "Features")), "")


def _build(compiler: list[str], target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / LIBRARY
        sources = sorted(str(path) for path in SOURCE.glob("*.cc"))
        result = _run([*compiler, *FLAGS, *sources, "-o", str(made), "-ldl"])
        if result.returncode or not made.is_file():
            said = (
                " | ".join(result.stderr.strip().splitlines()) or f"code {result.returncode}, and no library"
            )
            raise BuildError(f"{' '.join(compiler)} failed: {said}")
        target.with_suffix(SUM).write_text(_checksum(made), encoding="ascii")
        made.replace(target)


def _run(command: list[str]) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None
