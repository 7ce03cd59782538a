"""Archives of data: `.tar`, `.tar.gz`, `.tgz` and `.zip`, unpacked whole or not at all.

Nothing is ever written outside of the new folder: names are checked, links are made after all files and must
stay inside, devices are refused. Owners and permissions in the archive are ignored.
"""

from __future__ import annotations

import gzip
import logging
import lzma
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO, Union

from src.errors import UserError
from src.model_utils.values import abbreviated
from src.user_files import open_regular, read_bytes

log = logging.getLogger(__name__)

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
BLOCK_BYTES = 2**20
MAX_LINK = 4096  # bytes of a link's target
MAX_RECEIPT = 10_000
MAX_DEPTH = 100  # folders in folders
RECEIPT = ".unpacked"  # in the folder: which archive it came from
_DAMAGES = (
    EOFError, MemoryError, OSError, OverflowError, RuntimeError, ValueError, lzma.LZMAError, struct.error,
    tarfile.TarError, zlib.error, zipfile.BadZipFile,
)  # fmt: skip


class _UnsafeError(ValueError):
    """An entry that would reach out of its folder, or fill memory or disk."""


class _NoGiant:
    """A stream for `tarfile`, which reads an entry's name at once, whatever length that claims."""

    def __init__(self, stream: BinaryIO):
        self.seek, self.tell = stream.seek, stream.tell
        self._read = stream.read

    def read(self, size: int) -> bytes:
        """Read part of a file, or all of a header or name."""
        if size > BLOCK_BYTES:
            raise tarfile.ReadError(f"a name of {size} bytes")
        return self._read(size)


Entry = tuple[str, str, Union[BinaryIO, str, None]]  # name, kind, and the bytes of a file or a link's target


def archive_stem(name: str) -> str | None:
    """The name without the suffix of an archive; None when it has none."""
    lower = name.lower()
    return next((name[: -len(suffix)] for suffix in SUFFIXES if lower.endswith(suffix)), None)


def unpack_all(root: Path) -> None:
    """Unpack every archive below `root` into the folder beside it that has its name, and those in archives.

    A folder of that name that came from elsewhere is left alone.

    Raises:
        UserError: as `unpack`.
    """
    for folder, subfolders, names in os.walk(root):
        if len(Path(folder).relative_to(root).parts) > MAX_DEPTH:
            raise UserError(
                f"{folder} lies too deep below {root}; is it an archive that holds itself? Remove it"
            )
        for name in sorted(names):
            stem = archive_stem(name)
            if not stem or name.startswith("."):
                continue
            archive, target = Path(folder, name), Path(folder, stem)
            if _occupied(target) and not _receipt(target):
                log.warning("%s exists, so %s was not unpacked", target, archive)
                continue
            unpack(archive, target)
            if stem not in subfolders:
                subfolders.append(stem)


def unpack(archive: Path, target: Path) -> None:
    """Unpack an archive into the folder `target`, which appears when it is complete; the archive stays.

    If all of the archive lies in one folder of the archive's own name, that folder becomes `target`. What an
    unchanged archive was unpacked to before is kept, what an older version of it left is replaced.

    Raises:
        UserError: the archive is damaged or unsafe, the disk is full, or `target` holds something else.
    """
    part = target.with_name(f".{target.name}.unpacking")
    try:
        about = archive.stat()
        receipt = f"{archive.name}\n{about.st_size} {about.st_mtime_ns}\n"
        found = _receipt(target)
        if found == receipt:
            log.info("%s is unpacked already", archive)
            return
        if _occupied(target) and found.partition("\n")[0] != archive.name:
            raise UserError(
                f"{archive} unpacks to {target}, which holds something else; remove one of the two"
            )
        log.info("unpack %s to %s", archive, target)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        with open_regular(archive) as stream:
            entries = _zip_entries if stream.read(4) in (b"PK\3\4", b"PK\5\6") else _tar_entries
            stream.seek(0)
            _write(entries(stream), part)
        content = _content(part, archive)
        (content / RECEIPT).write_text(receipt, encoding="utf-8")
        if found:
            shutil.rmtree(target)
        content.replace(target)
    except UserError:
        raise
    except _UnsafeError as error:
        raise UserError(f"{archive} was not unpacked, it is unsafe: {error}; pack it anew") from None
    except _DAMAGES as error:
        if isinstance(error, OSError) and error.strerror:
            raise UserError(f"cannot unpack {archive} to {target}: {error.strerror}") from error
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{archive} is damaged or no archive: {reason}; copy it again") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _receipt(target: Path) -> str:
    try:
        return read_bytes(target / RECEIPT, MAX_RECEIPT).decode(errors="replace")
    except OSError:
        return ""


def _occupied(target: Path) -> bool:
    return target.exists() and not (target.is_dir() and not any(target.iterdir()))


def _content(part: Path, archive: Path) -> Path:
    """The folder that matters of the freshly unpacked ones."""
    inner = part / str(archive_stem(archive.name))
    return inner if list(part.iterdir()) == [inner] and inner.is_dir() and not inner.is_symlink() else part


def _write(entries: Iterable[Entry], root: Path) -> None:
    """Write files and folders, then hard links, then symbolic ones, through which nothing was written."""
    links: dict[str, list[tuple[Path, str]]] = {"hard link": [], "link": []}
    for name, kind, content in entries:
        place = _inside(root, name)
        if kind == "folder":
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            with content, place.open("wb") as stream:
                shutil.copyfileobj(content, stream, BLOCK_BYTES)
        else:
            links[kind].append((place, content))
    for place, target in links["hard link"]:
        os.link(_inside(root, target), place)
    for place, target in links["link"]:
        place.symlink_to(target)
    top = root.resolve()
    for place, target in links["link"]:
        try:
            inside = top in place.resolve(strict=True).parents
        except (OSError, RuntimeError):  # it leads nowhere, or in circles
            inside = False
        if not inside:
            where = place.relative_to(root).as_posix()
            raise _UnsafeError(f"{abbreviated(where)} is a link to {abbreviated(target)}, which is not in it")


def _inside(root: Path, name: str) -> Path:
    """The place of an entry below `root`."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or PureWindowsPath(name).drive:
        raise _UnsafeError(f"{abbreviated(name)} is no plain relative name with / between folders")
    return root / path


def _tar_entries(stream: BinaryIO) -> Iterator[Entry]:
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    if packed:
        stream = gzip.GzipFile(fileobj=stream)
    with tarfile.open(fileobj=_NoGiant(stream), mode="r:") as tar:
        for member in iter(tar.next, None):
            if member.issparse():  # a kilobyte can stand for all of the disk
                raise _UnsafeError(f"{abbreviated(member.name)} is a sparse file")
            if member.isreg():
                yield member.name, "file", tar.extractfile(member)
            elif member.isdir():
                yield member.name, "folder", None
            elif member.issym() or member.islnk():
                yield member.name, "link" if member.issym() else "hard link", member.linkname
            else:
                raise _UnsafeError(f"{abbreviated(member.name)} is a device or a pipe")
            tar.members.clear()  # a million of them would fill the memory
        stream.seek(tar.offset)
        if any(stream.read(tarfile.BLOCKSIZE) or b"\1"):  # tarfile takes a broken header for the end
            raise tarfile.ReadError("it has no end mark")
        while packed and stream.read(BLOCK_BYTES):  # the checksum of gzip comes last
            pass


def _zip_entries(stream: BinaryIO) -> Iterator[Entry]:
    with zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.filename.endswith("/"):
                yield info.filename, "folder", None
            elif kind == stat.S_IFLNK:
                with archive.open(info) as content:
                    target = content.read(MAX_LINK + 1)
                if len(target) > MAX_LINK:
                    raise _UnsafeError(f"{abbreviated(info.filename)} is a link with an endless target")
                yield info.filename, "link", os.fsdecode(target)
            elif kind in (0, stat.S_IFREG):
                yield info.filename, "file", archive.open(info)
            else:
                raise _UnsafeError(f"{abbreviated(info.filename)} is a device or a pipe")
