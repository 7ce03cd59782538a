"""Runs on ModelArts: data and weights are copied to the machine, results back, around an unchanged run.

One process of a machine copies in. The addresses are those of `transfer`, so that paths of a machine without
ModelArts go the same way.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Callable, TypeVar

from easydict import EasyDict

from src.errors import UserError
from src.model_utils import transfer
from src.model_utils.archives import archive_stem, unpack, unpack_all
from src.model_utils.local_adapter import get_place
from src.model_utils.once import once

log = logging.getLogger(__name__)

T = TypeVar("T")
WEIGHT_SUFFIXES = (".npz", ".ckpt", ".safetensors")


def moxing_wrapper(run: Callable[[EasyDict], T]) -> Callable[[EasyDict], T]:
    """Wrap a use case: with `enable_modelarts` it runs between two copies, otherwise it just runs.

    It gets a copy of the configuration that holds the paths of the machine. The results are copied back also
    when it fails or is stopped; its result or its exception passes through.

    Raises:
        UserError: something cannot be copied or unpacked, in this process or in another of the machine.
    """

    @functools.wraps(run)
    def wrapped(cfg: EasyDict) -> T:
        return _run_between_copies(run, cfg) if cfg.enable_modelarts else run(cfg)

    return wrapped


def uploader(cfg: EasyDict) -> Callable[[], None]:
    """Return what copies the results so far to `train_url`, in the process whose part that is.

    A failure is a warning in the log.
    """

    def upload() -> None:
        try:
            _upload(cfg)
        except UserError as error:
            log.warning("%s; the run goes on", error)

    return upload


def _run_between_copies(run: Callable[[EasyDict], T], cfg: EasyDict) -> T:
    rank, number = get_place()
    here = _ranks_of_a_machine(number)
    first = rank - rank % here
    meeting = once(
        _marker(cfg),
        lambda: _copy_in(cfg),
        me="scheduler" if _is_scheduler() else f"{rank}",
        members=[f"{other}" for other in range(first, first + here)],
        wait_seconds=60.0 * cfg.copy_minutes,
    )
    with _stopped_by_sigterm(), meeting:
        try:
            result = run(_with_local_paths(cfg))
        except BaseException as error:
            _set_sigterm(signal.SIG_IGN)
            if _destination(cfg):  # the log file leaves with the results, before `run_main` writes into it
                log.error("the run ended with %s: %s", type(error).__name__, " ".join(str(error).split()))
            try:
                _upload(cfg)
            except UserError as failure:
                log.error("%s", failure)
            raise
        _set_sigterm(signal.SIG_IGN)  # what is left is the upload
        _upload(cfg)
        return result


def _copy_in(cfg: EasyDict) -> None:
    """Bring data and weights to the machine, and see that results can leave it."""
    if cfg.train_url:
        transfer.make_folder(cfg.train_url)
        if cfg.get("resume") == "auto" and not _has_results(cfg):  # what an earlier start has brought there
            log.info("copying %s to %s", cfg.train_url, cfg.output_path)
            transfer.copy(cfg.train_url, cfg.output_path)
    else:
        log.warning("train_url is not set: the results stay in %s", cfg.output_path)
    if cfg.data_url:
        _fetch_data(cfg.data_url, Path(cfg.data_path))
    if cfg.checkpoint_url:
        _fetch_weights(cfg.checkpoint_url, Path(cfg.load_path))


def _fetch_data(url: str, folder: Path) -> None:
    """Copy a folder's content, or unpack an archive, into `folder`, and unpack the archives in it."""
    log.info("copying %s to %s", url, folder)
    name = transfer.name_of(url)
    if transfer.is_folder(url):
        transfer.copy(url, str(folder))
    elif archive_stem(name):
        archive = folder.with_name(name)
        transfer.copy(url, str(archive))
        unpack(archive, folder)
    else:
        raise UserError(f"data_url {url} is a file; give a folder, or one of .tar, .tar.gz, .tgz and .zip")
    unpack_all(folder)


def _fetch_weights(url: str, place: Path) -> None:
    """Copy a file to `place` or into it, or a folder's content to `place` or where that is to lie."""
    log.info("copying %s to %s", url, place)
    name, is_file = transfer.name_of(url), place.suffix in WEIGHT_SUFFIXES
    if transfer.is_folder(url):
        transfer.copy(url, str(place.parent if is_file else place))
        if not place.exists():
            raise UserError(f"checkpoint_url {url} holds no {place.name}, which load_path asks for")
    elif is_file and PurePath(name).suffix != place.suffix:
        raise UserError(f"checkpoint_url is {url} and load_path {place}; let both end alike")
    else:
        transfer.copy(url, str(place if is_file else place / name))


def _with_local_paths(cfg: EasyDict) -> EasyDict:
    """The configuration on the machine: where the user left a path empty, it is where the copy is."""
    local = {"save_checkpoint_path": cfg.output_path}
    if cfg.data_url:  # an empty eval_path is found below dataset_path, as everywhere
        local["dataset_path"] = cfg.dataset_path or cfg.data_path
    if cfg.checkpoint_url:
        file = Path(cfg.load_path, transfer.name_of(cfg.checkpoint_url))
        weights = str(file if file.is_file() else cfg.load_path)
        local.update({key: cfg[key] or weights for key in ("pretrained", "checkpoint_path")})
    local["file_name"] = _exported(cfg, local.get("checkpoint_path", cfg.checkpoint_path))
    return EasyDict({**cfg, **local, "given": (*cfg.get("given", ()), *local)})


def _exported(cfg: EasyDict, checkpoint: str) -> str:
    """Where export writes: among the results, or it would stay on the machine."""
    results, file = Path(cfg.output_path), Path(cfg.file_name)
    if not cfg.file_name:
        return str(results / Path(checkpoint).stem) if checkpoint else ""
    return cfg.file_name if results in file.parents else str(results / file.name)


def _upload(cfg: EasyDict) -> None:
    """Copy the results to `train_url`, if that is this process's part and there are any."""
    destination, results = _destination(cfg), cfg.output_path
    if destination and _has_results(cfg):
        log.info("copying %s to %s", results, destination)
        try:
            transfer.copy(cfg.output_path, destination)
        except UserError as error:
            raise UserError(f"{error}; the results are in {results}") from error


def _has_results(cfg: EasyDict) -> bool:
    results = Path(cfg.output_path)
    return results.is_dir() and any(results.iterdir())


def _destination(cfg: EasyDict) -> str:
    """Where this process copies results to: '' for all but the first rank of each machine.

    The machine of rank 0, which writes the checkpoints, has `train_url` itself, the others a subfolder each.
    """
    rank, number = get_place()
    machine, position = divmod(rank, _ranks_of_a_machine(number))
    if not cfg.train_url or position or _is_scheduler():
        return ""
    return f"{cfg.train_url.rstrip('/')}/machine_{machine}" if machine else cfg.train_url


def _ranks_of_a_machine(number: int) -> int:
    """How many of all ranks run on one machine: by a launch script, by mpirun or by ModelArts; else all."""
    for key in ("DEVICE_NUM", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        if _count(key):
            return min(_count(key), number)
    return max(1, number // (_count("MA_NUM_HOSTS") or 1))


def _count(key: str) -> int:
    text = os.environ.get(key, "")
    return int(text) if text.isdecimal() else 0


def _is_scheduler() -> bool:
    """Whether this is the process that msrun starts besides the ranks; it is called rank 0, too."""
    return os.environ.get("MS_ROLE") == "MS_SCHED"


def _marker(cfg: EasyDict) -> Path:
    """The file at which those processes of this job meet that copy the same."""
    copies = [cfg.data_url, cfg.data_path, cfg.checkpoint_url, cfg.load_path, cfg.train_url]
    key = hashlib.sha256(repr([os.getuid(), _job(), *copies]).encode()).hexdigest()
    return Path(tempfile.gettempdir(), f"modelarts-copy-{key[:16]}.lock")


def _job() -> str:
    """What the processes of this job alone share: what the launcher or ModelArts says, or the parent."""
    for key in ("LAUNCH_RUN", "JOB_ID", "MA_VJ_NAME"):
        if os.environ.get(key):
            return os.environ[key]
    launcher, started = os.getppid(), ""
    with contextlib.suppress(OSError, IndexError):
        started = Path(f"/proc/{launcher}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{launcher} {started}"


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM, by which ModelArts stops a job, end the block of a rank as an exception does.

    A program that has a way of its own with SIGTERM keeps it. The scheduler sits in native code, which would
    not come back to a handler.
    """
    before, owner = signal.getsignal(signal.SIGTERM), os.getpid()

    def stop(number, _):
        if os.getpid() != owner:  # a child process has nothing to clean up
            os._exit(128 + number)
        raise SystemExit(128 + number)  # a second signal raises again, should something swallow this

    if before == signal.SIG_DFL and not _is_scheduler():
        _set_sigterm(stop)
    try:
        yield
    finally:
        _set_sigterm(before or signal.SIG_DFL)


def _set_sigterm(handler) -> None:
    """Set the handler where Python allows it, in the main thread."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
