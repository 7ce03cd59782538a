import os

import numpy as np
import pytest

from src.array_io import Weight
from src.errors import UserError
from src.progress import Progress
from src.resume import TRAINING, find_start, set_aside_later, training_record
from src.weight_file import write_weights

ARRAY = Weight("w", (3,), lambda: np.arange(3, dtype=np.float32))


def checkpoint(path, step, *, training=None, seconds=0):
    """A checkpoint after so many steps, written at that time."""
    record = training_record(Progress(step=step), config="seed: 3\n", data="abc", device_num=2)
    write_weights(path, [ARRAY], {"network": "bit_tiny", TRAINING: record if training is None else training})
    os.utime(path, (seconds, seconds))
    return path


def weights(path):
    write_weights(path, [ARRAY], {"network": "bit_tiny"})


def find(resume, root, run_name=""):
    return find_start(str(resume), root=str(root), run_name=run_name)


def test_a_checkpoint_says_where_the_run_stands_whatever_its_name(tmp_path):
    path = checkpoint(tmp_path / "vit-9_99.safetensors", 7)
    start = find(path, tmp_path)
    assert (start.path, start.progress.step) == (path, 7)
    assert (start.config, start.data, start.device_num) == ("seed: 3\n", "abc", 2)
    assert start.record["network"] == "bit_tiny"


def test_in_a_folder_the_most_steps_count_and_not_names_or_times(tmp_path):
    checkpoint(tmp_path / "last.ckpt", 5, seconds=900)
    newest = checkpoint(tmp_path / "bit-1_2.ckpt", 8, seconds=100)
    checkpoint(tmp_path / "z.safetensors", 3, seconds=300)
    weights(tmp_path / "best.ckpt")
    (tmp_path / ".last.ckpt.ab.tmp").write_bytes(b"half")
    assert find(tmp_path, tmp_path).path == newest


@pytest.mark.parametrize("damage", [b"", b"\x00" * 99, "cut", "flip"])
def test_broken_checkpoints_are_skipped_with_a_warning(tmp_path, damage, caplog):
    good = checkpoint(tmp_path / "a.ckpt", 5)
    bad = checkpoint(tmp_path / "last.ckpt", 9)
    data = bytearray(bad.read_bytes())
    if damage == "cut":
        data = data[:-20]
    elif damage == "flip":
        data[len(data) // 2] ^= 4
    else:
        data = damage
    bad.write_bytes(data)
    assert find(tmp_path, tmp_path).path == good
    assert any(
        "skipped" in record.getMessage() and "last.ckpt" in record.getMessage() for record in caplog.records
    )
    with pytest.raises(UserError, match=r"last\.ckpt"):
        find(bad, tmp_path)


def test_auto_takes_the_run_of_the_name_or_the_one_that_was_written_to_last(tmp_path):
    old = checkpoint(tmp_path / "old" / "last.ckpt", 50, seconds=100)
    new = checkpoint(tmp_path / "new" / "last.ckpt", 5, seconds=200)
    assert find("auto", tmp_path).path == new
    assert find("auto", tmp_path, "old").path == old
    new.write_bytes(b"broken")
    assert find("auto", tmp_path).path == old
    with pytest.raises(UserError, match=r"no checkpoint in .*new is whole; mend or remove last\.ckpt"):
        find("auto", tmp_path, "new")  # a new run would write over it


def test_a_backup_inside_a_run_is_not_the_run(tmp_path):
    path = checkpoint(tmp_path / "run" / "last.ckpt", 9, seconds=100)
    checkpoint(tmp_path / "run" / "backup" / "last.ckpt", 4, seconds=900)
    assert find(tmp_path / "run", tmp_path).path == path
    assert find("auto", tmp_path, "run").path == path


def test_links_to_nowhere_folders_and_pipes_are_skipped(tmp_path):
    path = checkpoint(tmp_path / "run" / "last.ckpt", 9)
    (tmp_path / "run" / "a.ckpt").symlink_to("/nowhere")
    (tmp_path / "run" / "b.ckpt").mkdir()
    os.mkfifo(tmp_path / "run" / "c.ckpt")
    assert find("auto", tmp_path).path == path


def test_later_checkpoints_are_set_aside(tmp_path):
    start = find(checkpoint(tmp_path / "a.ckpt", 4), tmp_path)
    checkpoint(tmp_path / "b.ckpt", 5)
    checkpoint(tmp_path / "c.ckpt", 4)
    weights(tmp_path / "best.ckpt")
    set_aside_later(start)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.ckpt", "b.ckpt.abandoned", "best.ckpt", "c.ckpt"]


def test_auto_begins_anew_where_there_is_nothing_and_a_path_does_not(tmp_path):
    assert find("auto", tmp_path / "nowhere") is None
    assert find("auto", tmp_path, "first") is None
    assert find("", tmp_path) is None
    weights(tmp_path / "best.ckpt")
    assert find("auto", tmp_path) is None
    with pytest.raises(UserError, match="holds no checkpoint to go on from"):
        find(tmp_path, tmp_path)
    with pytest.raises(UserError, match="holds weights and no state of a run"):
        find(tmp_path / "best.ckpt", tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        find(tmp_path / "no.ckpt", tmp_path)


@pytest.mark.parametrize(
    "training",
    [7, {}, {"progress": 3}, {"progress": Progress().as_record()},
     {**training_record(Progress(), config="", data="", device_num=1), "config": 3},
     {**training_record(Progress(), config="", data="", device_num=1), "device_num": "1"},
     training_record(Progress(step=-4), config="", data="", device_num=1)],
)  # fmt: skip
def test_a_state_that_is_none_is_one_line(tmp_path, training):
    path = checkpoint(tmp_path / "last.ckpt", 1, training=training)
    with pytest.raises(UserError, match="the state of the run is damaged"):
        find(path, tmp_path)
