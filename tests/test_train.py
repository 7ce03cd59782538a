"""`train.py` and `eval.py` from the command line to the accuracy, on small images made here."""

import json
import re
import shutil

import mindspore as ms
import numpy as np
import pytest
from bit_npz import golden_arrays
from PIL import Image
from support import colour_folder
from vit_npz import golden_arrays as vit_arrays

import eval as evaluation
import train as training
from src import dataset, from_config, learner, plan, run_callbacks, trainer
from src.class_map import write_class_map
from src.evaluator import evaluate_checkpoint
from src.model_utils.config import load_config
from src.trainer import train
from src.vit_map import VIT_ARCHITECTURES
from src.weight_file import open_weights

WATCHED = (".lock", "metrics.csv", "curves.png")  # what shows how the run went
SIZES = {"train_image_size": 16, "train_resize_size": 18}


def argv(**keys):
    return [f"--{key}={value}" for key, value in {**SIZES, "device_target": "CPU", **keys}.items()]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Three classes that differ by colour: 36 images to train on, 10 to evaluate on."""
    root = tmp_path_factory.mktemp("colours")
    colour_folder(root / "train", per_class=12, size=(20, 24))
    colour_folder(root / "val", per_class=4, size=(18, 21), seed=5)
    for name in ("blue/3.png", "red/3.png"):
        (root / "val" / name).unlink()
    return root


@pytest.fixture(scope="module")
def run(images, tmp_path_factory):
    """The folder of a finished run from scratch: it knows the colours."""
    out = tmp_path_factory.mktemp("runs")
    keys = {"backbone": "bit_tiny", "dataset_path": images, "batch_size": 6, "batch_split": 2, "lr_max": 0.01}
    code = training.main(
        argv(
            **keys,
            schedule_steps="2,24,27",
            save_checkpoint_path=out,
            run_name="first",
            eval_every=9,
            mixup=0.1,
        )
    )
    assert code == 0
    return out / "first"


def accuracy(printed):
    values = dict(re.findall(r"^(accuracy|top5_accuracy)=(.+)$", printed, re.MULTILINE))
    values["seen"] = re.search(r"^evaluated (\d+/\d+) images$", printed, re.MULTILINE)[1]
    return values


def one_line_error(capsys, code):
    captured = capsys.readouterr()
    assert code == 1
    assert "accuracy=" not in captured.out
    (line,) = [text for text in captured.err.splitlines() if text.startswith("error: ")]
    assert "Traceback" not in captured.err
    return line


def test_a_run_leaves_checkpoints_class_map_configuration_and_log(run):
    names = {path.name for path in run.iterdir()}
    assert names == {"last.ckpt", "best.ckpt", "class_map.json", "config.yml", "train.log", *WATCHED}
    assert json.loads((run / "class_map.json").read_text()) == {"blue": 0, "green": 1, "red": 2}
    log = (run / "train.log").read_text()
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:INFO:compile time used=", log, re.MULTILINE)
    assert log.count("eval_cost=") == 3
    assert "36 images, 3 classes" in log
    with open_weights(run / "last.ckpt") as weights:
        record = weights.record
    assert record["network"] == "bit_tiny"
    assert record["class_names"] == ["blue", "green", "red"]
    assert record["image_mean"] == record["image_std"] == [127.5] * 3
    assert record["eval_image_size"] == [16, 16]
    assert record["step"] == 27


def test_the_written_configuration_repeats_the_run_to_the_last_bit(run, tmp_path):
    assert training.main([f"--config_path={run / 'config.yml'}", f"--save_checkpoint_path={tmp_path}"]) == 0
    (again,) = tmp_path.iterdir()  # under a name of its own
    with open_weights(run / "last.ckpt") as first, open_weights(again / "last.ckpt") as second:
        for name, weight in first:
            np.testing.assert_array_equal(weight, second.read(name))


@pytest.mark.parametrize("batch", [1, 4, 10, 64])
def test_every_image_is_evaluated_once_for_any_batch_size(run, images, batch, capsys):
    assert evaluation.main([f"--checkpoint_path={run / 'last.ckpt'}", f"--eval_path={images / 'val'}",
                            f"--eval_batch_size={batch}", "--device_target=CPU"]) == 0  # fmt: skip
    assert accuracy(capsys.readouterr().out) == {
        "accuracy": "1.000000",
        "top5_accuracy": "n/a (3 classes)",
        "seen": "10/10",
    }


def test_one_wrong_image_in_the_last_batch_is_seen(run, images, tmp_path, capsys):
    shutil.copytree(images / "val", tmp_path / "val")
    shutil.copy(images / "val" / "blue" / "0.png", tmp_path / "val" / "red" / "2.png")
    evaluation.main([f"--checkpoint_path={run / 'last.ckpt'}", f"--eval_path={tmp_path / 'val'}",
                     "--eval_batch_size=4"])  # fmt: skip
    assert accuracy(capsys.readouterr().out)["accuracy"] == "0.900000"


def test_a_broken_image_is_left_out_of_the_evaluation_and_counted(run, images, tmp_path, capsys):
    shutil.copytree(images / "val", tmp_path / "val")
    (tmp_path / "val" / "green" / "1.png").write_bytes(b"")
    arguments = [f"--checkpoint_path={run / 'last.ckpt'}", f"--eval_path={tmp_path / 'val'}"]
    assert "green/1.png" in one_line_error(capsys, evaluation.main(arguments))
    assert evaluation.main([*arguments, "--on_bad_image=skip"]) == 0
    assert accuracy(capsys.readouterr().out)["seen"] == "9/10"


def test_the_accuracy_is_that_of_the_saved_weights(run, images):
    cfg = load_config([f"--checkpoint_path={run / 'last.ckpt'}", f"--dataset_path={images}"])
    result = evaluate_checkpoint(cfg)
    with open_weights(run / "last.ckpt") as weights:
        assert weights.record["result"]["top1"] == result.top1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--backbone=bit_r50x1"], "backbone is bit_r50x1, but .* was made with bit_tiny"),
        (["--class_num=4"], "class_num is 4, but .* was made with 3"),
        (["--image_mean=120"], "image_mean is .* was made with"),
        (["--interpolation=bicubic"], "interpolation is BICUBIC, but .* was made with BILINEAR"),
    ],
)
def test_a_configuration_that_denies_the_weights_is_refused(run, images, arguments, text, capsys):
    code = evaluation.main([f"--checkpoint_path={run / 'last.ckpt'}", f"--dataset_path={images}", *arguments])
    assert re.search(text, one_line_error(capsys, code))


def test_weights_that_are_missing_give_no_accuracy(images, capsys):
    code = evaluation.main([f"--checkpoint_path={images / 'no.ckpt'}", f"--dataset_path={images}"])
    assert "no.ckpt" in one_line_error(capsys, code)
    assert "checkpoint_path is not set" in one_line_error(
        capsys, evaluation.main([f"--dataset_path={images}"])
    )


def test_other_classes_or_another_order_are_refused(run, images, tmp_path, capsys):
    shutil.copytree(images / "val", tmp_path / "val")
    (tmp_path / "val" / "red").rename(tmp_path / "val" / "violet")
    code = evaluation.main([f"--checkpoint_path={run / 'last.ckpt'}", f"--eval_path={tmp_path / 'val'}"])
    assert "unknown: violet" in one_line_error(capsys, code)

    shutil.copy(run / "last.ckpt", tmp_path / "last.ckpt")
    write_class_map(tmp_path / "class_map.json", ["red", "green", "blue"])
    code = evaluation.main([f"--checkpoint_path={tmp_path / 'last.ckpt'}", f"--eval_path={images / 'val'}"])
    assert "another order" in one_line_error(capsys, code)


def test_a_finished_run_is_not_overwritten(run, images, capsys):
    before = (run / "last.ckpt").stat().st_mtime_ns
    code = training.main(
        argv(backbone="bit_tiny", dataset_path=images, save_checkpoint_path=run.parent, run_name=run.name)
    )
    assert "exists; choose another run_name" in one_line_error(capsys, code)
    assert (run / "last.ckpt").stat().st_mtime_ns == before


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder with a file as Google releases it, of 21 classes."""
    folder = tmp_path_factory.mktemp("google")
    np.savez(folder / "bit_tiny.npz", **golden_arrays((1, 1, 1, 1), 1, 21))
    return folder


def test_a_fine_tune_starts_from_the_files_body_and_a_zero_head(pretrained, images, tmp_path):
    keys = {"backbone": "bit_tiny", "dataset_path": images, "pretrained": pretrained, "batch_size": 6}
    cfg = load_config(argv(**keys, schedule_steps="1,2", save_checkpoint_path=tmp_path, run_name="tuned"))
    result = train(cfg)
    np.testing.assert_allclose(result.losses[0], np.log(3), atol=1e-5)
    body = golden_arrays((1, 1, 1, 1), 1, 21)["resnet/root_block/standardized_conv2d/kernel"]
    with open_weights(tmp_path / "tuned" / "last.ckpt") as weights:
        moved = np.abs(weights.read("root.conv.weight") - body.transpose(3, 2, 0, 1)).max()
        assert weights.record["pretrained"]["source"] == "bit_tiny.npz"
    assert moved < 0.1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pretrained": "{tmp}/no_such.npz"}, "no_such.npz"),
        ({"class_num": 4}, "the network has 4 classes and the data 3"),
        ({"class_num": 2}, "the network has 2 classes and the data 3"),
        ({"backbone": "bit_tinny"}, "did you mean 'bit_tiny'"),
        ({"dataset_path": "{tmp}/nowhere"}, "nowhere"),
        ({"examples_per_class": 13}, "class blue has 12 images"),
        ({"train_image_size": 99}, "99"),
        ({"batch_split": 4}, "batch_split"),
        ({"device_target": "Ascend"}, "device_target Ascend"),
        ({"eval_path": "{tmp}/nowhere"}, "nowhere"),
        ({"pretrained": "{tmp}"}, "a folder without bit_tiny.npz; it holds no .npz file"),
    ],
)
def test_what_cannot_work_ends_before_training(changes, text, images, tmp_path, capsys):
    keys = {"backbone": "bit_tiny", "dataset_path": images, "batch_size": 6, "save_checkpoint_path": tmp_path}
    changes = {k: v.format(tmp=tmp_path) if isinstance(v, str) else v for k, v in changes.items()}
    code = training.main(argv(**{**keys, **changes}))
    assert text in one_line_error(capsys, code)
    assert not list(tmp_path.iterdir())


def test_more_classes_than_the_data_has_can_be_allowed(images, tmp_path):
    keys = {"backbone": "bit_tiny", "dataset_path": images, "class_num": 7, "allow_unused_classes": "yes"}
    cfg = load_config(
        argv(**keys, batch_size=6, schedule_steps="1,2", mixup=0.2, save_checkpoint_path=tmp_path)
    )
    result = train(cfg)
    np.testing.assert_allclose(result.losses[0], np.log(7), atol=1e-5)
    cfg = load_config([f"--checkpoint_path={result.folder / 'last.ckpt'}", f"--dataset_path={images}"])
    assert evaluate_checkpoint(cfg).top1 == result.last["top1"]  # the record knows the three names


def test_a_subset_of_the_classes_needs_their_names(pretrained, images, capsys):
    """Google's files hold no class names: three folders cannot be told from twenty-one classes."""
    arguments = [f"--checkpoint_path={pretrained / 'bit_tiny.npz'}", f"--dataset_path={images}"]
    arguments += ["--eval_image_size=16", "--allow_unused_classes=true"]
    assert "21 classes and the data 3" in one_line_error(capsys, evaluation.main(arguments))
    names = ["blue", "green", "red", *(f"other_{i:02d}" for i in range(18))]
    write_class_map(pretrained / "class_map.json", names[::-1])
    try:
        assert evaluation.main(arguments) == 0
    finally:
        (pretrained / "class_map.json").unlink()
    assert accuracy(capsys.readouterr().out)["seen"] == "10/10"


def test_a_broken_evaluation_image_ends_the_training_with_its_name(images, tmp_path, capsys):
    shutil.copytree(images, tmp_path / "data")
    (tmp_path / "data" / "val" / "red" / "0.png").write_bytes(b"\x89PNG")
    keys = {"backbone": "bit_tiny", "dataset_path": tmp_path / "data", "batch_size": 36, "eval_every": 1}
    code = training.main(
        argv(**keys, schedule_steps="1,9", save_checkpoint_path=tmp_path / "out", run_name="r")
    )
    line = one_line_error(capsys, code)
    assert "val/red/0.png" in line
    assert line in (tmp_path / "out" / "r" / "train.log").read_text()


@pytest.mark.parametrize("level", ["O2", "O3"])
def test_half_precision_trains_like_full_precision(level, images, tmp_path):
    keys = {"backbone": "bit_tiny", "dataset_path": images, "batch_size": 6, "schedule_steps": "1,4"}
    keys = {**keys, "save_checkpoint_path": tmp_path, "eval_every": 0, "lr_max": 0.01}
    full, half = (train(load_config(argv(**keys, amp_level=name))).losses for name in ("O0", level))
    np.testing.assert_allclose(half, full, rtol=0.02)
    assert half != full  # float16 was used


@pytest.mark.parametrize(
    ("key", "value", "where", "argument"),
    [
        ("mixup", 0.3, "TrainStream", "mixup"),
        ("cutmix", 0.3, "TrainStream", "cutmix"),
        ("hflip", 0.25, "TrainTransform", "hflip"),
        ("on_bad_image", "skip", "TrainStream", "on_bad_image"),
        ("seed", 7, "TrainStream", "seed"),
        ("train_num_workers", 3, "TrainStream", "num_workers"),
        ("eval_batch_size", 5, "EvalBatches", "batch_size"),
        ("eval_num_workers", 3, "EvalBatches", "num_workers"),
        ("weight_decay", 0.1, "get_optimizer", "weight_decay"),
        ("momentum", 0.8, "get_optimizer", "momentum"),
        ("no_weight_decay_filter", ("beta", "bias"), "get_optimizer", "no_weight_decay"),
        ("beta1", 0.8, "get_optimizer", "beta1"),
        ("beta2", 0.8, "get_optimizer", "beta2"),
        ("epsilon", 0.1, "get_optimizer", "epsilon"),
        ("gc_flag", True, "get_optimizer", "gradient_centralization"),
        ("opt", "adamw", "get_optimizer", 0),
        ("layer_decay", 0.5, "layer_scales", 1),
        ("freeze", ("root", "body.block1"), "match_frozen", 1),
        ("label_smooth_factor", 0.2, "get_loss", "smooth_factor"),
        ("loss_name", "ce_smooth", "get_loss", 0),
        ("batch_split", 3, "TrainStep", "batch_split"),
        ("clip_norm", 0.7, "TrainStep", "clip_norm"),
        ("amp_level", "O2", "set_amp_level", 1),
        ("amp_level", "O3", "choose_amp_level", 0),
        ("amp_dtype", "bfloat16", "choose_amp_level", 1),
        ("loss_scale", 64, "get_loss_scaler", 1),
        ("loss_scale_mode", "dynamic", "get_loss_scaler", 0),
        ("dropout", 0.2, "get_network", "dropout"),
        ("attention_dropout", 0.2, "get_network", "attention_dropout"),
        ("drop_path", 0.2, "get_network", "drop_path"),
        ("pool", "mean", "get_network", "pool"),
        ("gelu", "exact", "get_network", "gelu"),
        ("random_erasing", 0.2, "RandomErasing", 0),
        ("randaugment", (3, 7.0), "get_augment", 1),
        ("autoaugment", True, "get_augment", 0),
        ("trivialaugment", True, "get_augment", 0),
        ("crop_min", 0.4, "RandomResizedCrop", 1),
        ("save_checkpoint_epochs", 2, "Checkpoints", "epochs"),
        ("save_checkpoint_steps", 2, "Checkpoints", "steps"),
        ("save_checkpoint_minutes", 2.5, "Checkpoints", "minutes"),
        ("keep_checkpoint_max", 2, "Checkpoints", "keep_max"),
        ("checkpoint_format", "safetensors", "Checkpoints", "suffix"),
        ("upload_epochs", 2, "EveryEpochs", "epochs"),
        ("ema_decay", 0.5, "WeightAverage", 1),
        ("max_steps", 3, "EarlyStop", "max_steps"),
        ("max_minutes", 1.5, "EarlyStop", "max_minutes"),
        ("max_bad_steps", 4, "LossRecorder", "max_bad"),
        ("tensorboard", True, "Metrics", "tensorboard"),
        ("all_reduce_fusion", (3, 7), "init_context", "all_reduce_fusion"),
        ("cpu_kernels", False, "install_cpu_kernels", "wanted"),
        ("replace_head", False, "load_pretrained", "replace_head"),
        ("log_every", 9, "StateMonitor", "log_every"),
    ],
)
def test_a_key_reaches_what_it_steers(key, value, where, argument, images, tmp_path, monkeypatch, pretrained):
    """A key of the configuration that nothing reads would be accepted and change nothing."""

    class ReachedError(Exception):
        pass

    def stop(*args, **kwargs):
        found = kwargs[argument] if isinstance(argument, str) else args[argument]
        assert found == GIVES.get(key, value)
        raise ReachedError

    places = (dataset, from_config, learner, run_callbacks, plan, trainer)
    module = next(place for place in places if hasattr(place, where))
    monkeypatch.setattr(module, where, stop)
    keys = {"backbone": "bit_tiny", "dataset_path": images, "pretrained": pretrained, "batch_size": 6}
    keys = {**keys, "lr_max": 0.01, "save_checkpoint_path": tmp_path, **NEEDS.get(key, {}), key: value}
    text = {name: ",".join(map(str, v)) if isinstance(v, tuple) else v for name, v in argv_keys(keys).items()}
    with pytest.raises(ReachedError):
        train(
            load_config([f"--{name}={v}" for name, v in text.items() if v is not None]), upload=lambda: None
        )


# What arrives when it is not the value of the key.
GIVES = {
    "autoaugment": "autoaugment",
    "trivialaugment": "trivialaugment",
    "checkpoint_format": ".safetensors",
}
# What a key needs beside it to have an effect.
NEEDS = {
    "label_smooth_factor": {"use_label_smooth": True},
    "loss_scale": {"amp_level": "O2"},
    "loss_scale_mode": {"amp_level": "O2"},
    "crop_min": {"train_resize_size": None},
    "amp_dtype": {"amp_level": "O2"},
    "upload_epochs": {"enable_modelarts": True},
}


def argv_keys(keys):
    return {**SIZES, "device_target": "CPU", **keys}


@pytest.mark.parametrize("wanted", [True, False])
def test_compile_cache_says_whether_the_graph_is_kept(wanted, images, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(trainer, "CompileCache", made.append)
    monkeypatch.setattr(trainer, "Model", None)
    keys = {"backbone": "bit_tiny", "dataset_path": images, "compile_cache": wanted, "batch_size": 6}
    with pytest.raises(TypeError):
        train(load_config(argv(**keys, schedule_steps="1,3", save_checkpoint_path=tmp_path)))
    assert bool(made) == wanted


def test_few_examples_fill_a_batch_that_is_larger_than_they_are(images, tmp_path):
    keys = {"backbone": "bit_tiny", "dataset_path": images, "examples_per_class": 1, "batch_size": 8}
    result = train(
        load_config(argv(**keys, schedule_steps="1,3", save_checkpoint_path=tmp_path, eval_every=0))
    )
    assert len(result.losses) == 3
    assert result.last["samples"] == 10


def test_a_vit_is_fine_tuned_from_googles_file_at_another_size_and_evaluated(images, tmp_path):
    sizes = VIT_ARCHITECTURES["vit_nano_patch8"]
    np.savez(tmp_path / "nano.npz", **vit_arrays(*sizes, 21, grid=4, pre_logits=True, token=False))
    keys = {"backbone": "vit_nano_patch8", "dataset_path": images, "pretrained": tmp_path / "nano.npz"}
    keys = {
        **keys,
        "batch_size": 6,
        "schedule_steps": "1,8",
        "lr_max": 0.03,
        "save_checkpoint_path": tmp_path,
    }
    result = train(load_config(argv(**keys, eval_every=0)))
    np.testing.assert_allclose(result.losses[0], np.log(3), atol=1e-5)
    with open_weights(result.folder / "last.ckpt") as weights:
        record = weights.record
    assert (record["pool"], record["pre_logits"], record["grid"]) == ("mean", False, [2, 2])
    cfg = load_config([f"--checkpoint_path={result.folder / 'last.ckpt'}", f"--dataset_path={images}"])
    assert evaluate_checkpoint(cfg).top1 == result.last["top1"]


@pytest.mark.parametrize("mode", ["stop", "skip"])
def test_a_broken_training_image_stops_the_run_or_is_left_out(mode, images, tmp_path, capsys):
    shutil.copytree(images, tmp_path / "data")
    for index in range(12):  # every red image: one is in the first batch, whatever the order
        (tmp_path / "data" / "train" / "red" / f"{index}.png").write_bytes(b"\x89PNG")
    keys = {"backbone": "bit_tiny", "dataset_path": tmp_path / "data", "batch_size": 36, "on_bad_image": mode}
    code = training.main(
        argv(**keys, schedule_steps="1,2", save_checkpoint_path=tmp_path / "out", run_name="r")
    )
    if mode == "stop":
        assert "train/red/" in one_line_error(capsys, code)
    else:
        assert code == 0
        assert "left out 12 broken images of 36" in (tmp_path / "out" / "r" / "train.log").read_text()


def test_a_png_that_is_called_jpeg_and_a_grey_image_train_like_any_other(images, tmp_path):
    shutil.copytree(images, tmp_path / "data")
    red = tmp_path / "data" / "train" / "red"
    (red / "0.png").rename(red / "0.JPEG")
    Image.open(red / "1.png").convert("L").save(red / "1.png")
    keys = {"backbone": "bit_tiny", "dataset_path": tmp_path / "data", "batch_size": 12}
    result = train(
        load_config(argv(**keys, schedule_steps="1,2", save_checkpoint_path=tmp_path, eval_every=0))
    )
    assert np.isfinite(result.losses).all()
    assert ms.get_context("mode") == ms.GRAPH_MODE
