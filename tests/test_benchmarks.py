import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from benchmarks import machine, run, serving
from benchmarks.rounds import Row, WorkerError, in_turn, table

ROOT = Path(__file__).parents[1]


def test_a_ratio_above_one_says_that_we_are_better():
    assert Row("train", "net", "s", [2, 1, 3], [5, 4, 3]).ratio() == 2
    assert Row("train", "net", "s", [2, 1, 3], [5, 4, 3]).best_ratio() == 3
    assert Row("pipeline", "crop", "images/s", [10, 30, 20], [4, 8, 16]).ratio() == 2.5
    assert Row("pipeline", "crop", "images/s", [10, 30, 20], [4, 8, 16]).best_ratio() == 30 / 16
    assert Row("start", "net", "s", [4]).ratio() is None


def test_the_table_tells_medians_spread_best_and_targets():
    rows = [Row("train", "net, batch 8", "s", [1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0], 1.05)]
    rows.append(Row("start", "net, second", "s", [4.25], (), 5, limit=True))
    assert table(rows).splitlines()[2:] == [
        "| train: net, batch 8 | 2.5 s (±50%), 1 | 5 s (±0%), 5 | 2.00 | 5.00 | 1.05 |",
        "| start: net, second | 4.25 s |  |  |  | < 5 s |",
    ]


def test_workers_take_turns_and_their_first_round_does_not_count():
    told = []

    class Worker:
        def __init__(self, name):
            self.name = name

        def times(self, count):
            told.append(self.name)
            return [len(told)] * count

    assert in_turn([Worker("a"), Worker("b")], rounds=2, count=2) == [[3, 3, 5, 5], [4, 4, 6, 6]]
    assert told == ["a", "b"] * 3


def test_our_side_runs_by_itself_and_writes_all_numbers(tmp_path):
    """The other side is a Python without torch here."""
    command = [sys.executable, "benchmarks/run.py", "--quick", "--only", "pipeline"]
    command += ["--torch-python", "/bin/false", "--json", str(tmp_path / "all.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "our side alone is timed" in done.stderr
    rows = json.loads((tmp_path / "all.json").read_text())["rows"]
    assert [row["case"] for row in rows][:3] == [
        "random resized crop", "with AutoAugment", "random resized crop, reduced decoding"
    ]  # fmt: skip
    assert all(row["ours"][0] > 0 and not row["theirs"] for row in rows)


def test_a_worker_that_dies_is_told(tmp_path):
    command = [
        sys.executable,
        "benchmarks/run.py",
        "--quick",
        "--only",
        "pipeline",
        "--torch-python",
        "/bin/false",
    ]
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        [*command, "--images", str(tmp_path / "empty")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pipeline failed:")
    assert str(tmp_path / "empty") in last


def test_what_is_missing_for_serving_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("MINDSPORE_LITE_HOME", str(tmp_path / "none"))
    assert serving.missing() == "MINDSPORE_LITE_HOME (bash scripts/get_lite_cpu.sh)"
    monkeypatch.setenv("MINDSPORE_LITE_HOME", str(tmp_path))
    monkeypatch.setattr(serving.importlib.util, "find_spec", lambda _: None)
    assert serving.missing().startswith("onnxruntime (pip install")


def test_the_program_tells_its_latency_memory_and_errors(tmp_path):
    command = serving.program(tmp_path / "net.mindir", tmp_path, size=2)
    assert command[0].endswith("out/infer")
    assert len(list((tmp_path / "tensors").iterdir())) == serving.IMAGES
    program = serving.Program(["echo", "latency: p50 12.5 ms"])
    assert program.times(2) == [0.0125, 0.0125]
    assert program.peak_memory() > 1e5
    with pytest.raises(WorkerError, match="ended with 3: no such model"):
        serving.Program(["bash", "-c", "echo no such model; exit 3"]).times(1)


def test_the_heading_names_what_both_sides_have():
    words = machine.heading(sys.executable)
    assert f"numpy {numpy.__version__}" in words.split(";")[0]
    assert "; beside" in words
    assert "beside" not in machine.heading(None)


def test_a_busy_machine_is_noticed(monkeypatch):
    cores = os.cpu_count()
    for idle, expected in ((0.1 * cores, 0), (0, cores)):
        readings = iter([5.0, 5.0 + idle])
        monkeypatch.setattr(machine, "_idle", lambda readings=readings: next(readings))
        assert machine.busy(0.1) == pytest.approx(expected, abs=0.2 * cores)


def test_a_folder_that_is_not_there_is_told_before_anything_is_timed(capsys):
    with pytest.raises(SystemExit):
        run.main(["--json", "none/such/all.json"])
    assert "--json none/such/all.json is a folder, or its folder does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--images", "none"], ["--torch-python", "none"], ["--repeats", "0"], ["--json", "."]]
)
def test_wrong_arguments_are_one_line(words, capsys):
    with pytest.raises(SystemExit):
        run.main(words)
    assert f"{words[0]}" in capsys.readouterr().err.splitlines()[-1]


def test_what_was_measured_before_an_error_or_ctrl_c_is_printed(monkeypatch, capsys, tmp_path):
    for error, code in ((KeyboardInterrupt(), 130), (WorkerError("it fell"), 1)):

        def rows(_, error=error):
            yield Row("train", "net", "s", [2.0])
            raise error

        monkeypatch.setattr(run.Benchmark, "train", rows)
        path = tmp_path / "all.json"
        assert run.main(["--quick", "--torch-python", "/bin/false", "--json", str(path)]) == code
        assert "| train: net | 2 s |" in capsys.readouterr().out
        assert json.loads(path.read_text())["rows"][0]["ours"] == [2.0]
