import gzip
import io
import os
import shutil
import stat
import subprocess
import tarfile
import zipfile

import pytest

from src.errors import UserError
from src.model_utils.archives import RECEIPT, archive_stem, unpack, unpack_all

FILES = {"cat/1.jpg": b"cat", "cat/deep/2.jpg": b"deep" * 500, "dog/1.jpg": bytes(3 * 512)}
KINDS = ("tar", "tar.gz", "tgz", "zip")


def write(path, files):
    """Write an archive of `files`; the value of a link is its target, `=` before it makes it a hard one."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                info = zipfile.ZipInfo(name)
                if isinstance(content, str):
                    info.external_attr = (stat.S_IFLNK | 0o777) << 16
                archive.writestr(info, content)
        return path
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type = tarfile.LNKTYPE if content.startswith("=") else tarfile.SYMTYPE
                info.linkname = content.lstrip("=")
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def tree(root):
    files = (path for path in root.rglob("*") if path.is_file() and path.name != RECEIPT)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("name", "stem"),
    [("a.tar", "a"), ("a.b.TAR.GZ", "a.b"), ("a.tgz", "a"), ("a.zip", "a"), ("a.gz", None), ("a.npz", None)],
)
def test_the_suffix_tells_an_archive(name, stem):
    assert archive_stem(name) == stem


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_is_unpacked_and_stays(tmp_path, kind):
    archive = write(tmp_path / f"a.{kind}", FILES)
    unpack(archive, tmp_path / "new/train")
    assert tree(tmp_path / "new/train") == FILES
    assert archive.is_file()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"train"}


@pytest.mark.skipif(not shutil.which("tar"), reason="no tar here")
@pytest.mark.parametrize("form", ["gnu", "pax", "ustar"])
def test_an_archive_of_the_tar_program_is_unpacked(tmp_path, form):
    names = ["a/1.jpg", "a/Ünïcode.jpg", "b/" + "long" * 20 + "/2.jpg"]
    for name in names:
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_text(name)
    command = ["tar", f"--format={form}", "-czf", tmp_path / "x.tar.gz", "-C", tmp_path / "set", "."]
    subprocess.run(command, check=True)
    unpack(tmp_path / "x.tar.gz", tmp_path / "x")
    assert tree(tmp_path / "x") == {name: name.encode() for name in names}


def test_a_folder_of_the_archive_s_own_name_is_not_doubled(tmp_path):
    unpack(write(tmp_path / "train.zip", {"train/cat/1.jpg": b"1"}), tmp_path / "train")
    unpack(write(tmp_path / "val.tar", {"other/cat/1.jpg": b"1"}), tmp_path / "val")
    assert tree(tmp_path / "train") == {"cat/1.jpg": b"1"}
    assert tree(tmp_path / "val") == {"other/cat/1.jpg": b"1"}


def test_archives_in_folders_and_in_archives_are_found(tmp_path):
    inner = write(tmp_path / "n01.tar", {"1.JPEG": b"1"}).read_bytes()
    (tmp_path / "n01.tar").unlink()
    (tmp_path / "set").mkdir()
    write(tmp_path / "set/train.tar", {"n01.tar": inner, "n02.tar": inner})
    unpack_all(tmp_path)
    assert {"n01/1.JPEG": b"1", "n02/1.JPEG": b"1"}.items() <= tree(tmp_path / "set/train").items()


def test_an_archive_is_unpacked_once(tmp_path):
    write(tmp_path / "train.tar", FILES)
    unpack_all(tmp_path)
    inode = (tmp_path / "train/cat/1.jpg").stat().st_ino
    unpack_all(tmp_path)
    assert (tmp_path / "train/cat/1.jpg").stat().st_ino == inode


def test_a_newer_archive_replaces_what_the_older_one_left(tmp_path):
    archive = write(tmp_path / "train.tar", FILES)
    unpack_all(tmp_path)
    write(archive, {"bird/1.jpg": b"bird"})
    os.utime(archive, (2_000_000_000, 2_000_000_000))
    unpack_all(tmp_path)
    assert tree(tmp_path / "train") == {"bird/1.jpg": b"bird"}


def test_a_folder_that_came_from_elsewhere_is_left_alone(tmp_path, caplog):
    write(tmp_path / "train.tar", FILES)
    (tmp_path / "train").mkdir()
    (tmp_path / "train/mine").write_text("mine")
    unpack_all(tmp_path)
    assert tree(tmp_path / "train") == {"mine": b"mine"}
    assert "train exists, so " in caplog.text
    with pytest.raises(UserError, match=r"train\.tar unpacks to .*/train, which holds something else"):
        unpack(tmp_path / "train.tar", tmp_path / "train")


def test_two_archives_of_one_name_are_refused(tmp_path):
    write(tmp_path / "train.tar", FILES)
    write(tmp_path / "train.zip", FILES)
    with pytest.raises(UserError, match=r"train\.zip unpacks to .*remove one of the two"):
        unpack_all(tmp_path)


def test_an_empty_folder_is_no_hindrance(tmp_path):
    (tmp_path / "a").mkdir()
    unpack(write(tmp_path / "a.tar", FILES), tmp_path / "a")
    assert tree(tmp_path / "a") == FILES


OUTSIDE = ["../x.jpg", "a/../../x.jpg", "/tmp/x.jpg", "a\\x.jpg", "..\\x.jpg", "C:/x.jpg"]


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_outside_is_refused_and_nothing_is_left(tmp_path, kind, name):
    root = tmp_path / "in/here"
    root.mkdir(parents=True)
    archive = write(root / f"a.{kind}", {"good.jpg": b"1", name: b"evil"})
    with pytest.raises(
        UserError, match=r"a\.\w+ was not unpacked, it is unsafe: .*x\.jpg.* is no plain"
    ) as error:
        unpack(archive, root / "a")
    assert "\n" not in str(error.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]
    assert not (root / "a").exists()


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("target", ["../secret", "/etc/hostname", "nowhere", "self", "sub/../../secret", "."])
def test_a_link_that_leads_outside_or_nowhere_is_refused(tmp_path, kind, target):
    (tmp_path / "secret").write_text("secret")
    archive = write(tmp_path / f"a.{kind}", {"sub/1.jpg": b"1", "self": target})
    with pytest.raises(UserError, match=r"'self' is a link to .*, which is not in it"):
        unpack(archive, tmp_path / "a")
    assert {path.name for path in tmp_path.iterdir()} == {"secret", archive.name}


def test_nothing_is_written_through_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    archive = write(tmp_path / "a.tar", {"door": str(outside), "door/x.jpg": b"evil"})
    with pytest.raises(UserError):
        unpack(archive, tmp_path / "a")
    assert list(outside.iterdir()) == []


def test_a_hard_link_to_the_outside_is_refused(tmp_path):
    (tmp_path / "secret").write_text("secret")
    for target in ("=../secret", f"={tmp_path}/secret"):
        archive = write(tmp_path / "a.tar", {"x.jpg": target})
        with pytest.raises(UserError, match="is no plain relative name"):
            unpack(archive, tmp_path / "a")
    link = write(tmp_path / "b.tar", {"door": "../secret", "x.jpg": "=door"})
    with pytest.raises(UserError):
        unpack(link, tmp_path / "b")
    assert (tmp_path / "secret").stat().st_nlink == 1


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_links_within_the_archive_work(tmp_path, kind):
    links = {"val": "train", "train/b.jpg": "a.jpg"}
    if kind == "tar":
        links["hard.jpg"] = "=train/a.jpg"
    unpack(write(tmp_path / f"x.{kind}", {**links, "train/a.jpg": b"a"}), tmp_path / "x")
    for name in ("val/a.jpg", "train/b.jpg", *(["hard.jpg"] if kind == "tar" else [])):
        assert (tmp_path / "x" / name).read_bytes() == b"a"


def test_a_device_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("null")
        info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 1, 3
        archive.addfile(info)
    with pytest.raises(UserError, match="'null' is a device or a pipe"):
        unpack(tmp_path / "a.tar", tmp_path / "a")


def test_modes_of_the_archive_do_not_lock_anyone_out(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in (("d", tarfile.DIRTYPE), ("d/x.jpg", tarfile.REGTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o4000
            archive.addfile(info)
    unpack(tmp_path / "a.tar", tmp_path / "a")
    mode = (tmp_path / "a/d/x.jpg").stat().st_mode
    assert mode & 0o600 == 0o600
    assert not mode & 0o4000


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_cut_anywhere_leaves_nothing_and_stays(tmp_path, kind):
    whole = write(tmp_path / f"a.{kind}", FILES).read_bytes()
    archive = tmp_path / f"a.{kind}"
    needed = len(whole) if kind != "tar" else whole.rindex(b"jpg") // 512 * 512 + 4 * 512 + 1
    cuts = range(0, needed, 512) if kind == "tar" else range(0, needed, max(1, needed // 12))
    for cut in [*cuts, needed - 1]:
        archive.write_bytes(whole[:cut])
        with pytest.raises(UserError, match=rf"a\.{kind} is damaged or no archive: .*; copy it again"):
            unpack(archive, tmp_path / "a")
        assert [path.name for path in tmp_path.iterdir()] == [archive.name]
    archive.write_bytes(whole)
    unpack(archive, tmp_path / "a")
    assert tree(tmp_path / "a") == FILES


def test_a_broken_header_in_the_middle_is_not_the_end(tmp_path):
    archive = write(tmp_path / "a.tar", FILES)
    data = bytearray(archive.read_bytes())
    data[data.rindex(b"dog/1.jpg")] ^= 1
    archive.write_bytes(data)
    with pytest.raises(UserError, match="has no end mark"):
        unpack(archive, tmp_path / "a")


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_a_wrong_checksum_is_found(tmp_path, kind):
    archive = write(tmp_path / f"a.{kind}", {"1.jpg": b"cat" * 99})
    data = bytearray(archive.read_bytes())
    place = len(data) - 6 if kind == "tar.gz" else data.index(b"PK\1\2") + 16
    data[place] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(UserError, match="is damaged"):
        unpack(archive, tmp_path / "a")


def test_a_locked_zip_is_one_line(tmp_path):
    archive = write(tmp_path / "a.zip", {"1.jpg": b"cat"})
    data = bytearray(archive.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    archive.write_bytes(data)
    with pytest.raises(UserError, match="is encrypted"):
        unpack(archive, tmp_path / "a")


def test_the_content_and_not_the_suffix_says_whether_it_is_packed(tmp_path):
    plain = write(tmp_path / "a.tar", FILES).read_bytes()
    (tmp_path / "a.tar").write_bytes(gzip.compress(plain))
    (tmp_path / "b.tgz").write_bytes(plain)
    unpack_all(tmp_path)
    assert tree(tmp_path / "a") == tree(tmp_path / "b") == FILES


def test_a_full_disk_is_one_line_and_leaves_no_half(tmp_path, monkeypatch):
    archive = write(tmp_path / "a.tar", FILES)

    def full_disk(source, target, length):
        target.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full_disk)
    with pytest.raises(UserError, match=r"cannot unpack .*/a\.tar to .*/a: No space left on device"):
        unpack(archive, tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_what_a_killed_process_left_is_swept_away(tmp_path):
    (tmp_path / ".a.unpacking/cat").mkdir(parents=True)
    (tmp_path / ".a.unpacking/cat/old.jpg").write_text("half")
    unpack(write(tmp_path / "a.tar", FILES), tmp_path / "a")
    assert tree(tmp_path / "a") == FILES
