import os
import sys

import pytest
from cloud import images, write_moxing

from src.errors import UserError
from src.model_utils import transfer


@pytest.fixture
def buckets(tmp_path, monkeypatch):
    environ = write_moxing(tmp_path)
    monkeypatch.setenv("BUCKETS", environ["BUCKETS"])
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield tmp_path / "buckets"
    for name in ("moxing", "moxing.file"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("url", "name"),
    [("s3://b/a/c.npz", "c.npz"), ("obs://b/a/", "a"), ("file:///x/a%20b", "a b"), ("/x/y/", "y")],
)
def test_an_address_has_a_last_name(url, name):
    assert transfer.name_of(url) == name


@pytest.mark.parametrize("url", ["http://host/x", "file://host/x", "s4://b/x"])
def test_an_unknown_kind_of_address_is_refused(url):
    with pytest.raises(
        UserError, match="is no address to copy from or to: use s3://, obs://, file:///folder or"
    ):
        transfer.is_folder(url)


def test_a_tree_is_copied_over_what_is_there(tmp_path):
    images(tmp_path / "a")
    (tmp_path / "a/empty").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/other").write_text("stays")
    transfer.copy(str(tmp_path / "a"), str(tmp_path / "b"))
    found = {path.relative_to(tmp_path / "b").as_posix() for path in (tmp_path / "b").rglob("*")}
    folders = {"train", "train/cat", "val", "val/cat", "empty"}
    assert found == {"other", "train/cat/1.jpg", "val/cat/2.jpg"} | folders


def test_links_are_followed(tmp_path):
    images(tmp_path / "set")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/train").symlink_to(tmp_path / "set/train")
    (tmp_path / "a/one.jpg").symlink_to(tmp_path / "set/val/cat/2.jpg")
    transfer.copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b/train/cat/1.jpg").read_text() == "train/cat/1.jpg"
    assert not (tmp_path / "b/one.jpg").is_symlink()


def test_an_unchanged_file_is_not_copied_again(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("one")
    os.utime(a, (1_000_000_000, 1_000_000_000))
    transfer.copy(str(a), str(b))
    inode = b.stat().st_ino
    transfer.copy(str(a), str(b))
    assert b.stat().st_ino == inode
    a.write_text("two")
    transfer.copy(str(a), str(b))
    assert b.read_text() == "two"


def test_a_copy_that_breaks_off_leaves_the_old_file(tmp_path, monkeypatch):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("new")
    b.write_text("old and whole")

    def full_disk(source, target):
        target.write_text("n")
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("shutil.copyfile", full_disk)
    with pytest.raises(UserError, match=r"cannot copy .*/a to .*/b: No space left on device"):
        transfer.copy(str(a), str(b))
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    assert b.read_text() == "old and whole"


def test_a_link_to_nothing_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/gone").symlink_to("nothing")
    with pytest.raises(UserError, match=r"No such file or directory \(.*a/gone\)"):
        transfer.copy(str(tmp_path / "a"), str(tmp_path / "b"))


def test_a_folder_does_not_go_into_itself_and_stays_where_it_is(tmp_path):
    a = images(tmp_path / "a")
    with pytest.raises(UserError, match="which lies in it; choose another place"):
        transfer.copy(str(a), str(a / "train/copy"))
    transfer.copy(str(a), str(a / "train/.."))
    assert len(list(a.rglob("*"))) == 6


def test_nothing_at_the_address_is_one_line(tmp_path, buckets):
    for url in (str(tmp_path / "none"), "s3://b/none"):
        with pytest.raises(UserError, match=f"there is nothing to copy at {url}"):
            transfer.copy(url, str(tmp_path / "b"))


def test_moxing_gets_paths_for_file_addresses(tmp_path, buckets):
    images(tmp_path / "my set")
    transfer.copy(f"file://{tmp_path}/my%20set".replace(" ", "%20"), "obs://b/deep/set")
    transfer.copy("s3://b/deep/set/val/cat/2.jpg", f"file://{tmp_path}/new/x.jpg")
    assert (buckets / "b/deep/set/train/cat/1.jpg").read_text() == "train/cat/1.jpg"
    assert (tmp_path / "new/x.jpg").read_text() == "val/cat/2.jpg"
