import csv
import math
import os
from pathlib import Path

import pytest

from src.metrics_file import MetricsFile, Row


def rows(path):
    return list(csv.DictReader(path.open()))


def write(path, steps, start=0):
    file = MetricsFile(path, start, path if start else None)
    for step in steps:
        file.append(
            Row(step, step // 2, loss=1.5 + step, learning_rate=1e-3, top1=0.5 if step == 2 else None)
        )
    file.close()
    return file


def test_each_step_is_a_row_and_what_was_not_measured_is_empty(tmp_path):
    write(tmp_path / "m.csv", [1, 2])
    first, second = rows(tmp_path / "m.csv")
    assert list(first) == list(Row._fields)
    assert (first["step"], first["epoch"], first["loss"], first["top1"], first["data_wait"]) == (
        "1",
        "0",
        "2.5",
        "",
        "",
    )
    assert (second["loss"], second["learning_rate"], second["top1"]) == ("3.5", "0.001", "0.5")


def test_a_row_is_in_the_file_at_once(tmp_path):
    file = MetricsFile(tmp_path / "m.csv")
    file.append(Row(1, 0, loss=math.nan))
    assert [row["loss"] for row in rows(tmp_path / "m.csv")] == ["nan"]
    file.close()


@pytest.mark.parametrize("torn", ["", "4,2,5.", "x,y\n", "5,1\n", '4,"\n', "\x00\xff,,,\n"])
def test_a_resumed_run_keeps_the_rows_up_to_its_step_and_drops_what_a_kill_tore(tmp_path, torn):
    path = tmp_path / "m.csv"
    write(path, [1, 2, 3, 4])
    with path.open("a", encoding="latin-1") as stream:
        stream.write(torn)
    again = write(path, [3, 4], start=2)
    assert [row["step"] for row in rows(path)] == ["1", "2", "3", "4"]
    assert [(row.step, row.loss, row.top1) for row in again.rows[:2]] == [(1, 2.5, None), (2, 3.5, 0.5)]


def test_a_new_run_in_an_old_folder_begins_anew(tmp_path):
    write(tmp_path / "m.csv", [1, 2, 3])
    write(tmp_path / "m.csv", [1])
    assert [row["step"] for row in rows(tmp_path / "m.csv")] == ["1"]


def test_a_file_that_cannot_be_written_is_told_once_and_ends_nothing(tmp_path, caplog, monkeypatch):
    gone = write(tmp_path / "nowhere" / "m.csv", [1, 2, 3])
    assert len(gone.rows) == 3
    assert len(caplog.records) == 1
    full = MetricsFile(tmp_path / "m.csv")
    full._stream.close()
    full._stream = Path("/dev/full").open("a", encoding="utf-8")  # noqa: SIM115
    for step in (1, 2, 3):
        full.append(Row(step, 0))
    full.close()
    assert len(caplog.records) == 2
    assert "No space left" in caplog.records[1].getMessage()


def test_an_evaluation_that_was_made_up_for_comes_into_the_row_of_its_step(tmp_path):
    path = tmp_path / "m.csv"
    write(path, [1, 3])
    file = MetricsFile(path, 3, path)
    file.amend(Row(3, 1, top1=0.75))
    file.append(Row(4, 2, loss=1.0))
    file.close()
    assert [(row["step"], row["loss"], row["top1"]) for row in rows(path)] == [
        *(("1", "2.5", ""), ("3", "4.5", "0.75"), ("4", "1", "")),
    ]


def test_a_run_takes_its_rows_along_and_says_what_is_missing(tmp_path, caplog):
    write(tmp_path / "old.csv", [1, 2, 4])
    write_to = MetricsFile(tmp_path / "new.csv", 4, tmp_path / "old.csv")
    write_to.close()
    assert [row["step"] for row in rows(tmp_path / "new.csv")] == ["1", "2", "4"]
    assert "only 3 of 4 steps could be read" in caplog.text


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_waited_for(tmp_path, make):
    make(tmp_path / "old.csv")
    assert MetricsFile(tmp_path / "new.csv", 4, tmp_path / "old.csv").rows == []
