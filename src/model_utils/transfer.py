"""Copying between addresses: s3:// and obs:// through `moxing`, file:// and plain paths without it.

`moxing` comes with ModelArts and is imported when the first s3:// or obs:// address is met. It takes local
paths, too.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath
from types import ModuleType
from urllib.parse import unquote

from src.errors import UserError


def name_of(url: str) -> str:
    """The last part of an address."""
    return (_local(url) or PurePosixPath(url)).name


def is_folder(url: str) -> bool:
    """Whether an address is a folder, and not a file. Raises `UserError` when nothing is there."""
    path = _local(url)
    if path is None:
        moxing = _import_moxing(url)
        with_there = _asked(moxing.file.exists, url)
        folder = with_there and _asked(moxing.file.is_directory, url)
    else:
        with_there, folder = path.exists(), path.is_dir()
    if not with_there:
        raise UserError(f"there is nothing to copy at {url}; check the address")
    return bool(folder)


def make_folder(url: str) -> None:
    """Create a folder, unless it is there. Raises `UserError`."""
    path = _local(url)
    if path is None:
        _asked(_import_moxing(url).file.make_dirs, url)
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create the folder {url}: {error.strerror}") from error


def copy(source: str, target: str) -> None:
    """Copy a file to a file, or all that a folder holds into a folder, over what is there.

    Between local folders a file of the same size and time is taken for unchanged, and a file is complete when
    it has its name.

    Raises:
        UserError: there is nothing to copy, no right or room to write it, or no `moxing`.
    """
    folder = is_folder(source)
    from_path, to_path = _local(source), _local(target)
    if from_path is not None and to_path is not None:
        _copy_locally(from_path, to_path)
        return
    if to_path is not None:
        make_folder(str(to_path.parent))
    remote = _import_moxing(target if to_path is None else source).file
    ends = [str(path or url) for path, url in ((from_path, source), (to_path, target))]
    _asked(remote.copy_parallel if folder else remote.copy, *ends)


def _local(url: str) -> Path | None:
    """The path of a local address; None for s3:// and obs://."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return Path(url).expanduser().absolute()
    if scheme.lower() in ("s3", "obs"):
        return None
    if scheme.lower() == "file" and rest.startswith("/"):
        return Path(unquote(rest))
    raise UserError(f"{url} is no address to copy from or to: use s3://, obs://, file:///folder or a path")


def _import_moxing(url: str) -> ModuleType:
    try:
        import moxing
    except ImportError as error:
        raise UserError(
            f"{url} needs the package moxing, which ModelArts has and this machine has not ({error}); "
            "run it there, or give a path"
        ) from None
    return moxing


def _asked(function, *addresses: str):
    """What a function of moxing answers; it has no exception type of its own."""
    try:
        return function(*addresses)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"moxing cannot {function.__name__} {' to '.join(addresses)}: {reason}") from error


def _copy_locally(source: Path, target: Path) -> None:
    if source.resolve() in target.resolve().parents:
        raise UserError(f"cannot copy {source} to {target}, which lies in it; choose another place")
    try:
        if not source.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(source, target)
            return
        for folder, _, names in os.walk(source, onerror=_raise, followlinks=True):
            place = target / Path(folder).relative_to(source)
            place.mkdir(parents=True, exist_ok=True)
            for name in names:
                _copy_file(Path(folder, name), place / name)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise UserError(f"cannot copy {source} to {target}: {error.strerror or error}{where}") from error


def _raise(error: OSError) -> None:
    raise error


def _copy_file(source: Path, target: Path) -> None:
    about = source.stat()
    if target.exists():
        there = target.stat()
        if (there.st_size, there.st_mtime_ns) == (about.st_size, about.st_mtime_ns):
            return
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, part)
        os.utime(part, ns=(about.st_atime_ns, about.st_mtime_ns))
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
