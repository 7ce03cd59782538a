"""Runs that are cut and go on: what comes out is what an undisturbed run gives, to the last bit."""

import csv
import shutil
from dataclasses import replace

import pytest
from support import colour_folder, same_files

import train as training
from src import learner
from src.beginning import find_beginning
from src.context import Runtime
from src.errors import UserError
from src.evaluator import evaluate_checkpoint
from src.model_utils.config import load_config
from src.plan import make_plan
from src.progress import Progress
from src.resume import find_start
from src.trainer import train
from src.weight_file import SUFFIXES, open_weights, write_weights

COMMON = {
    "device_target": "CPU", "train_image_size": 16, "train_resize_size": 18, "batch_size": 6, "eval_every": 3,
    "save_checkpoint_steps": 2, "keep_checkpoint_max": 2,
}  # fmt: skip
RUNS = {
    "bit": {"backbone": "bit_tiny", "lr_max": 0.01, "schedule_steps": "2,9", "mixup": 0.2, "batch_split": 2},
    "vit": {
        "backbone": "vit_nano_patch8", "opt": "adamw", "lr_max": 0.003, "schedule_steps": "2,9",
        "lr_decay_mode": "cosine", "weight_decay": 0.1, "clip_norm": 1, "mixup": 0.2, "cutmix": 1.0,
        "dropout": 0.1, "attention_dropout": 0.1, "drop_path": 0.2, "ema_decay": 0.9, "randaugment": "2,9",
        "random_erasing": 0.5, "amp_level": "O2", "loss_scale_mode": "dynamic", "loss_scale": 2**18,
        "checkpoint_format": "safetensors",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("colours")
    colour_folder(root / "train", per_class=10)  # an epoch is five steps
    colour_folder(root / "val", per_class=3)
    return root


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def config(**keys):
    return load_config([f"--{key}={value}" for key, value in keys.items()])


@pytest.fixture(scope="module", params=RUNS)
def cut(request, images, out):
    """An undisturbed run, and one of the same keys that stops after step 4 and goes on; its two results."""
    keys = {**COMMON, **RUNS[request.param], "dataset_path": images, "save_checkpoint_path": out}
    train(config(**keys, run_name=f"{request.param}-whole"))
    name = f"{request.param}-cut"
    first = train(config(**keys, run_name=name, resume="auto", max_steps=4))
    second = train(config(**keys, run_name=name, resume="auto"))
    return request.param, first, second


def test_a_run_that_was_cut_inside_an_epoch_ends_like_an_undisturbed_one(cut, out):
    family, first, second = cut
    assert (len(first.losses), len(second.losses)) == (4, 5)
    same_files(out / f"{family}-whole", out / f"{family}-cut")


def test_every_step_and_evaluation_has_its_row(cut, out):
    family, _, second = cut
    rows = [list(csv.DictReader((out / f"{family}-{n}" / "metrics.csv").open())) for n in ("whole", "cut")]
    for whole, other in zip(*rows):
        for key in ("step", "epoch", "loss", "gradient_norm", "learning_rate", "top1"):
            assert whole[key] == other[key], (whole["step"], key)
    assert [row["step"] for row in rows[1]] == [str(step) for step in range(1, 10)]
    assert [row["epoch"] for row in rows[1]] == list("000001111")
    assert [row["step"] for row in rows[1] if row["top1"]] == ["3", "6", "9"]
    assert float(rows[1][-1]["top1"]) == pytest.approx(second.last["top1"], abs=1e-6)
    with open_weights(next((out / f"{family}-cut").glob("last.*"))) as file:
        progress = file.record["training"]["progress"]
    assert [row["loss"] for row in rows[1]].count("nan") == 9 - progress["applied"]
    assert (progress["applied"] < 9) == (family == "vit")  # the huge loss scale had to be halved first
    assert (out / f"{family}-cut" / "curves.png").stat().st_size > 10_000


def test_the_accuracy_that_was_logged_is_that_of_the_file(cut, images, out):
    family, _, second = cut
    (path,) = (out / f"{family}-cut").glob("last.*")
    result = evaluate_checkpoint(config(checkpoint_path=path, dataset_path=images, device_target="CPU"))
    assert result.top1 == second.last["top1"]


def test_a_finished_run_has_nothing_left_to_do(cut, out, images):
    family, _, second = cut
    folder = out / f"{family}-cut"
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.suffix in SUFFIXES}
    assert len(before) == 4
    again = train(config(resume=folder, device_target="CPU"))  # all keys come from the checkpoint
    assert (again.losses, again.last, again.best) == ([], second.last, second.best)
    assert before == {p.name: p.stat().st_mtime_ns for p in folder.iterdir() if p.suffix in SUFFIXES}
    assert "the run is complete, nothing was left to do" in (folder / "train.log").read_text()


def test_a_resumed_run_with_other_keys_data_or_devices_is_refused_unless_told(cut, out, images, tmp_path):
    family, *_ = cut
    path = next((out / f"{family}-cut").glob(f"{RUNS[family]['backbone']}-1_2.*"), None)
    path = path or next((out / f"{family}-cut").glob("last.*"))
    common = {"resume": path, "device_target": "CPU"}
    with pytest.raises(UserError, match=r"was trained with lr_max 0\.\d+, now 0\.5; resume with what it had"):
        train(config(**common, lr_max=0.5))
    colour_folder(tmp_path / "train", per_class=11)
    with pytest.raises(UserError, match=r"hflip 0\.5, now 0\.0; other training images"):
        train(config(**common, hflip=0, dataset_path=tmp_path))
    with pytest.raises(UserError, match="exists; choose another run_name"):
        train(config(**common, lr_max=0.5, allow_changed_config=True, run_name=f"{family}-whole"))
    cfg, start = find_beginning(config(**common))
    with pytest.raises(UserError, match="devices 3, now 1; resume"):
        make_plan(cfg, replace(start, device_num=3), Runtime("CPU", 0, 0, 1))


def test_the_same_command_starts_and_restarts(images, out, capsys):
    keys = {**COMMON, **RUNS["bit"], "dataset_path": images, "save_checkpoint_path": out, "resume": "auto"}
    argv = [f"--{key}={value}" for key, value in {**keys, "run_name": "again", "max_minutes": 1e-9}.items()]
    for step in (1, 2):
        assert training.main(argv) == 0
        said = capsys.readouterr().out
        assert f"stopped after step {step} of 9: max_minutes 1e-09; saved in {out / 'again'}" in said
    assert "resumed after step 1 of 9" in said


def test_a_run_goes_on_in_another_folder_with_longer_training_and_brings_its_best(images, out, tmp_path):
    keys = {**COMMON, **RUNS["bit"], "dataset_path": images, "eval_every": 1}
    train(config(**keys, save_checkpoint_path=out, run_name="short", max_steps=2))
    keys.update(schedule_steps="2,11", allow_changed_config=True, max_steps=3, save_checkpoint_path=tmp_path)
    result = train(config(**keys, resume=out / "short"))
    assert result.folder == tmp_path / "short"
    with open_weights(tmp_path / "short" / "best.ckpt") as best:
        assert best.record["result"]["top1"] == result.best["top1"]
    assert not (out / "short" / "bit_tiny-1_4.ckpt").exists()


def test_a_resumed_run_may_have_other_keys_that_change_nothing_learnt(images, out):
    keys = {**COMMON, **RUNS["bit"], "dataset_path": images, "save_checkpoint_path": out, "run_name": "free"}
    train(config(**keys, max_steps=1))
    keys.update(eval_every=0, log_every=7, train_num_workers=3, keep_checkpoint_max=1, progress_bar=False)
    assert len(train(config(**keys, resume="auto", max_steps=2)).losses) == 1


def test_a_cloud_job_that_is_started_again_goes_on_on_a_fresh_machine(images, tmp_path, capsys):
    keys = {**COMMON, **RUNS["bit"], "enable_modelarts": True, "data_url": images, "run_name": "job"}
    keys.update(train_url=tmp_path / "bucket", resume="auto")
    for step in (1, 2):
        machine = tmp_path / f"machine{step}"
        places = {
            "data_path": machine / "data",
            "load_path": machine / "model",
            "output_path": machine / "out",
        }
        argv = [f"--{key}={value}" for key, value in {**keys, **places, "max_steps": step}.items()]
        assert training.main(argv) == 0
    assert "resumed after step 1 of 9" in capsys.readouterr().out
    with open_weights(tmp_path / "bucket" / "job" / "last.ckpt") as file:
        assert file.record["step"] == 2
    older = tmp_path / "machine1" / "out" / "job" / "last.ckpt"
    shutil.copy(older, tmp_path / "bucket" / "job" / "last.ckpt")
    argv[-1] = "--max_steps=3"
    assert training.main(argv) == 0  # the machine has newer results of its own
    assert "resumed after step 2 of 9" in capsys.readouterr().out


def test_going_back_to_an_earlier_checkpoint_sets_the_later_ones_aside(images, tmp_path):
    keys = {
        **COMMON,
        **RUNS["bit"],
        "dataset_path": images,
        "save_checkpoint_path": tmp_path,
        "run_name": "r",
    }
    train(config(**keys, max_steps=4))
    folder = tmp_path / "r"
    train(config(resume=folder / "bit_tiny-1_2.ckpt", device_target="CPU", max_steps=3))
    assert (folder / "bit_tiny-1_4.ckpt.abandoned").exists()
    assert find_start("auto", root=str(tmp_path), run_name="r").progress.step == 3
    assert len((folder / "metrics.csv").read_text().splitlines()) == 4
    train(config(resume=folder, device_target="CPU", max_steps=3))  # it is reached: nothing happens
    assert find_start("auto", root=str(tmp_path), run_name="r").progress.step == 3


def test_a_lone_checkpoint_begins_a_folder_of_its_own(images, tmp_path):
    keys = {**COMMON, **RUNS["bit"], "dataset_path": images, "save_checkpoint_path": tmp_path / "runs"}
    run = train(config(**keys, max_steps=1)).folder
    (tmp_path / "loose").mkdir()
    lone = shutil.copy(run / "last.ckpt", tmp_path / "loose" / "mine.ckpt")
    result = train(
        config(resume=lone, device_target="CPU", save_checkpoint_path=tmp_path / "more", max_steps=1)
    )
    assert [path.name for path in (tmp_path / "loose").iterdir()] == ["mine.ckpt"]
    assert result.folder.parent == tmp_path / "more"
    assert (result.folder / "last.ckpt").exists()


def test_a_changed_loss_scale_is_that_of_the_user_and_a_changed_size_is_evaluated(images, tmp_path):
    keys = {
        **COMMON,
        **RUNS["bit"],
        "dataset_path": images,
        "save_checkpoint_path": tmp_path,
        "run_name": "r",
    }
    keys.update(amp_level="O2", loss_scale_mode="dynamic", loss_scale=2**30, run_name="r")
    train(config(**keys, max_steps=1))
    again = {"resume": tmp_path / "r", "device_target": "CPU", "max_steps": 2, "allow_changed_config": True}
    train(config(**again, loss_scale=64, train_image_size=12, train_resize_size=14))
    with open_weights(tmp_path / "r" / "last.ckpt") as file:
        assert file.read("scale_value") == 64
        assert file.record["eval_image_size"] == [12, 12]


def test_a_run_can_go_without_checkpoints(images, tmp_path):
    keys = {**COMMON, **RUNS["bit"], "dataset_path": images, "save_checkpoint_path": tmp_path, "max_steps": 1}
    result = train(config(**keys, save_checkpoint=False))
    assert not [path for path in result.folder.iterdir() if path.suffix in SUFFIXES]


def test_an_unknown_state_of_a_newer_version_is_one_line(images, out, tmp_path, capsys):
    record = {"network": "bit_tiny", "training": {"progress": {**Progress().as_record(), "step": "x"}}}
    write_weights(tmp_path / "last.ckpt", [], record)
    assert training.main([f"--resume={tmp_path / 'last.ckpt'}"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_each_rank_drops_other_elements(images, tmp_path, monkeypatch):
    class ReachedError(Exception):
        pass

    def stop(network, seed, rank):
        raise ReachedError(seed, rank)

    monkeypatch.setattr(learner, "seed_dropout", stop)
    keys = {**COMMON, **RUNS["vit"], "dataset_path": images, "save_checkpoint_path": tmp_path, "seed": 6}
    plan = make_plan(config(**keys), None, Runtime("CPU", 0, 1, 2))
    with pytest.raises(ReachedError) as reached:
        learner.make_learner(plan)
    assert reached.value.args == (6, 1)


def test_max_steps_at_the_end_of_the_run_is_its_end_and_is_evaluated(images, tmp_path):
    keys = {
        **COMMON,
        **RUNS["bit"],
        "dataset_path": images,
        "save_checkpoint_path": tmp_path,
        "run_name": "r",
    }
    keys.update(schedule_steps="1,2", max_steps=1)
    train(config(**keys))
    result = train(config(resume=tmp_path / "r", device_target="CPU", max_steps=2))
    assert result.last["samples"] == 9
