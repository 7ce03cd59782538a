"""The kept graph of a training step, in processes of their own: the cache is for the first run of each."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bit_npz import bit_arrays
from support import colour_folder

from src.compile_cache import ENABLE, KEPT, PATH, CompileCache, _forget_oldest
from src.user_cache import user_cache

ROOT = Path(__file__).parents[1]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(CompileCache, "_used", False)
    monkeypatch.setattr(sys, "argv", [__file__])
    return user_cache("graphs")


def test_a_graph_is_kept_when_its_step_has_run(cache):
    one = CompileCache(["a"])
    one.on_train_begin(None)
    made = Path(os.environ[PATH])
    (made / "graph.hash").write_text("")
    assert os.environ[ENABLE] == "1"
    assert made.name.startswith(".new-")
    one.on_train_step_end(None)
    assert ENABLE not in os.environ
    assert PATH not in os.environ
    (kept,) = cache.iterdir()
    assert list(kept.iterdir()) == [kept / "graph.hash"]


def test_a_graph_whose_step_failed_is_not_kept(cache):
    one = CompileCache(["a"])
    one.on_train_begin(None)
    one.close()
    assert ENABLE not in os.environ
    assert not list(cache.iterdir())


def test_a_graph_that_a_full_disk_cut_short_is_not_kept(cache):
    one = CompileCache(["a"])
    one.on_train_begin(None)
    Path(os.environ[PATH], "graph.mindir").write_text("")
    one.on_train_step_end(None)
    assert not list(cache.iterdir())


def test_a_kept_graph_is_found_by_the_same_facts_alone(cache):
    places = []
    for facts in (["a", 1], ["a", 1], ["a", 2]):
        CompileCache._used = False
        one = CompileCache(facts)
        one.on_train_begin(None)
        places.append(Path(os.environ[PATH]).name.startswith(".new-"))
        Path(os.environ[PATH], "graph.hash").write_text("")
        one.on_train_step_end(None)
    assert places == [True, False, True]


def test_a_second_run_of_a_process_has_no_cache(cache):
    for wanted in (True, False):
        one = CompileCache(["a"])
        one.on_train_begin(None)
        assert (ENABLE in os.environ) == wanted
        one.on_train_step_end(None)


@pytest.mark.parametrize("argv", [["-c"], [""], [], [sys.executable], ["-"]])
def test_without_a_script_there_is_no_cache(cache, argv, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    CompileCache(["a"]).on_train_begin(None)
    assert ENABLE not in os.environ
    assert not cache.exists()


def test_variables_of_the_user_are_left_alone(cache, monkeypatch):
    monkeypatch.setenv(PATH, "/mine")
    one = CompileCache(["a"])
    one.on_train_begin(None)
    one.on_train_step_end(None)
    assert os.environ[PATH] == "/mine"
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_ends_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(CompileCache, "_used", False)
    one = CompileCache(["a"])
    one.on_train_begin(None)
    assert ENABLE not in os.environ
    one.on_train_step_end(None)


def test_the_graphs_that_were_used_last_stay(tmp_path):
    for number in range(KEPT + 3):
        (tmp_path / str(number)).mkdir()
        os.utime(tmp_path / str(number), (number, number))
    _forget_oldest(tmp_path)
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == list(range(3, KEPT + 3))


def test_a_kept_graph_computes_with_the_weights_of_its_run_and_not_for_other_keys(tmp_path):
    """A graph that belongs to another configuration would give its losses without a word."""
    colour_folder(tmp_path / "data")
    for seed in (1, 2):
        np.savez(tmp_path / f"{seed}.npz", **bit_arrays(class_num=7, seed=seed))

    def losses(name, weights, **keys):
        keys = {"pretrained": tmp_path / f"{weights}.npz", "run_name": name, **keys}
        keys |= {"backbone": "bit_tiny", "dataset_path": tmp_path / "data", "batch_size": 4, "batch_split": 2}
        keys |= {"train_resize_size": 40, "train_image_size": 32, "schedule_steps": "1,3", "eval_every": 0}
        keys |= {"save_checkpoint_path": tmp_path / "out", "device_target": "CPU", "use_label_smooth": True}
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        command = [sys.executable, "train.py", *(f"--{key}={value}" for key, value in keys.items())]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "correctness risks" not in done.stderr + done.stdout
        with (tmp_path / "out" / name / "metrics.csv").open() as stream:
            return [row["loss"] for row in csv.DictReader(stream) if row.get("loss")]

    graphs = tmp_path / "cache" / "mindspore_bit_vit" / "graphs"
    first = losses("first", 1)
    (kept,) = graphs.iterdir()
    before = kept.stat().st_mtime_ns
    cached = losses("cached", 2)
    assert kept.stat().st_mtime_ns > before
    assert cached != first
    assert cached == losses("plain", 2, compile_cache=False)
    assert len(list(graphs.iterdir())) == 1
    smoothed = losses("smoothed", 2, label_smooth_factor=0.3)
    assert smoothed[1:] != cached[1:]
    assert len(list(graphs.iterdir())) == 2
