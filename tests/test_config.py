"""The configuration: where values come from, what they become, and how faults are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from easydict import EasyDict

from src.errors import UserError
from src.model_utils.config import MAX_FILE_BYTES, config_to_yaml, load_config
from src.model_utils.schema import GROUPS, SCHEMA
from src.model_utils.values import TYPES


@pytest.fixture
def from_yaml(tmp_path):
    """Write YAML text (or bytes) to a file and load it, with overrides after it."""

    def load(text, *overrides):
        path = tmp_path / "run.yml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(["--config_path", str(path), *overrides])

    return load


def fault(call, *arguments) -> str:
    """Return the message of the `UserError` that the call must raise; it is one line."""
    with pytest.raises(UserError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


# Where values come from


def test_without_a_file_every_key_has_its_default():
    config = load_config([])
    assert isinstance(config, EasyDict)
    assert set(config) == {"config_path", "given", *SCHEMA}
    assert config.given == ()
    assert (config.batch_size, config.lr_max, config.backbone) == (512, None, "")
    assert (config.mixup, config.save_checkpoint, config.dataset_path) == (None, True, "")


def test_the_command_line_wins_over_the_file_which_wins_over_the_defaults(from_yaml, tmp_path):
    config = from_yaml("seed: 7\nbatch_size: 64\n", "--batch_size", "32")
    assert (config.seed, config.batch_size, config.log_every) == (7, 32, 10)
    assert config.config_path == str(tmp_path / "run.yml")


def test_no_argv_means_that_of_the_process(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--seed=5"])
    assert load_config().seed == 5


def test_two_loads_share_nothing():
    first = load_config(["--schedule_steps", "1,2,3"])
    first.schedule_steps.append(4)
    first.seed = 99
    assert load_config([]).schedule_steps is None
    assert load_config([]).seed == 1


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\ufeff"])
def test_an_empty_file_is_no_keys(from_yaml, text):
    assert from_yaml(text).batch_size == 512


def test_a_bad_value_in_the_file_is_told_even_when_the_command_line_replaces_it(from_yaml):
    assert ":1: seed: expected" in fault(from_yaml, "seed: x\n", "--seed", "2")


def test_a_byte_order_mark_and_windows_line_ends_are_read(from_yaml):
    assert from_yaml(b"\xef\xbb\xbfseed: 4\r\nlr_max: 1e-3\r\n").lr_max == 0.001


# What values become

SAME_RULES = [
    ("lr_max", "1e-3", 0.001),
    ("lr_max", "5e-4", 0.0005),
    ("lr_max", "1e3", 1000.0),
    ("lr_max", "1.0e-4", 0.0001),
    ("lr_max", "+.5", 0.5),
    ("lr_max", "2", 2.0),
    ("batch_size", "017", 17),
    ("batch_size", "512.0", 512),
    ("batch_size", "1e3", 1000),
    ("hflip", "0", 0.0),
    ("hflip", "1", 1.0),
    ("mixup", "null", None),
    ("mixup", "~", None),
    ("mixup", "0", 0.0),
    ("device_target", "cpu", "CPU"),
    ("device_target", "ascend", "Ascend"),
    ("interpolation", "bicubic", "BICUBIC"),
    ("amp_level", "AUTO", "auto"),
    ("class_num", "NULL", None),
    ("run_name", "null", ""),
    ("run_name", "012", "012"),
    ("train_image_size", "224", 224),
    ("train_image_size", "128,96", (128, 96)),
    ("train_image_size", "[128, 96]", (128, 96)),
    ("train_image_size", "[128]", 128),
    ("schedule_steps", "[0, 200, 1e3]", [0, 200, 1000]),
    ("image_mean", "127.5", (127.5, 127.5, 127.5)),
    ("image_std", "58.4, 57.1,57", (58.4, 57.1, 57.0)),
    ("dataset_path", "/data/../x y", "/data/../x y"),
    ("dataset_path", "~", ""),
]


@pytest.mark.parametrize(("key", "text", "value"), SAME_RULES)
def test_yaml_and_command_line_follow_the_same_rules(from_yaml, key, text, value):
    for config in (
        load_config([f"--{key}", text]),
        load_config([f"--{key}={text}"]),
        from_yaml(f"{key}: {text}\n"),
        from_yaml(f"{key}: '{text}'\n"),
    ):
        assert config[key] == value
        assert type(config[key]) is type(value)


@pytest.mark.parametrize("text", ["True", "true", "TRUE", "1", "yes", "Yes", "on"])
def test_words_that_mean_true(from_yaml, text):
    assert load_config(["--allow_unused_classes", text]).allow_unused_classes is True
    assert from_yaml(f"allow_unused_classes: {text}").allow_unused_classes is True


@pytest.mark.parametrize("text", ["False", "false", "FALSE", "0", "no", "No", "off"])
def test_words_that_mean_false(from_yaml, text):
    assert load_config(["--save_checkpoint", text]).save_checkpoint is False
    assert from_yaml(f"save_checkpoint: {text}").save_checkpoint is False


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("save_checkpoint", "maybe"),
        ("save_checkpoint", "2"),
        ("save_checkpoint", "null"),
        ("batch_size", "1:30"),
        ("batch_size", "0x10"),
        ("batch_size", "1_000"),
        ("batch_size", "1.5"),
        ("batch_size", "true"),
        ("batch_size", "٣"),
        ("batch_size", "null"),
        ("batch_size", "2147483648"),
        ("batch_size", "9" * 5000),
        ("batch_size", "[4]"),
        ("batch_size", ""),
        ("lr_max", "nan"),
        ("lr_max", ".inf"),
        ("lr_max", "1e999"),
        ("lr_max", "1:30"),
        ("lr_max", "fast"),
        ("device_target", "TPU"),
        ("train_image_size", "128,96,3"),
        ("train_image_size", "224x224"),
        ("train_image_size", "[]"),
        ("schedule_steps", "100"),
        ("schedule_steps", "100,100"),
        ("schedule_steps", "100,50,200"),
        ("decay_epochs", "3,2"),
        ("decay_epochs", "0,1"),
        ("randaugment", "2"),
        ("randaugment", "0,5"),
        ("randaugment", "2,11"),
        ("freeze", "a,,b"),
        ("image_mean", "1,2"),
        ("run_name", ".."),
        ("run_name", "a/b"),
        ("run_name", "a\\b"),
        ("dataset", "null"),
        ("save_checkpoint_path", ""),
        ("dataset_path", "~nobody_of_this_name/data"),
    ],
)
def test_a_value_of_the_wrong_kind_names_the_place_the_key_and_what_is_wanted(from_yaml, tmp_path, key, text):
    message = fault(load_config, [f"--{key}", text])
    assert message.startswith(f"command line: {key}: expected ")
    assert len(message) < 300
    message = fault(from_yaml, f"# header\n\n{key}: {text}\n")
    assert message.startswith(f"{tmp_path / 'run.yml'}:3: {key}: expected ")


@pytest.mark.parametrize(
    ("key", "allowed", "refused"),
    [
        ("seed", "0", "-1"),
        ("batch_size", "1", "0"),
        ("hflip", "1", "1.01"),
        ("lr_max", "1e-30", "0"),
        ("momentum", "0", "1"),
        ("momentum", "0.999", "-0.1"),
        ("weight_decay", "0", "-1e-9"),
        ("mixup", "0", "-1"),
        ("image_std", "0.1", "[1, 0, 1]"),
        ("image_mean", "-1", "x"),
        ("train_image_size", "[1, 2]", "[2, 0]"),
        ("schedule_steps", "0,1", "-1,1"),
        ("eval_every", "0", "-1"),
    ],
)
def test_bounds_hold_at_the_bound(key, allowed, refused):
    load_config([f"--{key}", allowed])
    assert repr(refused) in fault(load_config, [f"--{key}", refused])


def test_a_message_is_this_one():
    assert fault(load_config, ["--momentum", "1.5"]) == (
        "command line: momentum: expected a number >= 0, < 1; got '1.5'"
    )
    assert fault(load_config, ["--device_target=TPU"]) == (
        "command line: device_target: expected one of CPU, GPU, Ascend, or null; got 'TPU'"
    )


def test_relative_paths_start_at_the_working_directory(from_yaml, tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", "/home/somebody")
    config = from_yaml("dataset_path: data/train\neval_path: ~/val\n")
    assert config.dataset_path == str(work / "data/train")
    assert config.eval_path == "/home/somebody/val"
    assert config.save_checkpoint_path == str(work / "outputs")


def test_control_characters_and_broken_bytes_are_refused(from_yaml):
    assert "control characters" in fault(from_yaml, 'dataset_path: "a\\0b"\n')
    assert "UTF-8" in fault(load_config, ["--dataset_path", os.fsdecode(b"a\xff")])


# The command line


def test_a_value_may_start_with_a_dash():
    assert load_config(["--image_mean", "-1"]).image_mean == (-1.0, -1.0, -1.0)
    assert load_config(["--run_name", "-x"]).run_name == "-x"
    assert load_config(["--run_name=--x=y"]).run_name == "--x=y"


@pytest.mark.parametrize("rest", [[], ["--batch_size", "4"]])
def test_a_boolean_without_a_value_says_what_to_write(rest):
    message = fault(load_config, ["--save_checkpoint", *rest])
    assert "--save_checkpoint true or false" in message


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--seed", "1", "--seed=2"], "seed is given twice"),
        (["--config_path", "a.yml", "--config_path", "b.yml"], "config_path is given twice"),
        (["--batch_size"], "--batch_size needs a value"),
        (["train"], "expected --key value, got 'train'"),
        (["-seed", "1"], "got '-seed'"),
        (["--train_image_size", "128", "96"], "got '96'; lists are written 128,96"),
        (["--"], "got '--'"),
        (["--=3"], "unknown key ''"),
        (["--bach_size", "4"], "unknown key 'bach_size'; did you mean 'batch_size'?"),
        (["--batch-size", "4"], "did you mean 'batch_size'?"),
        (["--batch", "4"], "unknown key 'batch'"),
        (["--zzzzzz", "4"], "unknown key 'zzzzzz'; --help lists the keys"),
    ],
)
def test_faults_of_the_command_line(argv, words):
    message = fault(load_config, argv)
    assert message.startswith("command line: ")
    assert words in message


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("columns", [60, 100])
def test_help_lists_every_key_within_the_terminal_and_exits_0(option, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as left:
        load_config(["--nonsense", option], prog="eval.py", description="Evaluate a network.")
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: eval.py [--config_path FILE]")
    assert "Evaluate a network." in text
    assert max(map(len, text.splitlines())) <= columns
    for name in ("config_path", *SCHEMA):
        assert text.count(f"  --{name} ") == 1
    for group in GROUPS:
        assert f"\n{group}:\n" in text
    words = " ".join(text.split())
    assert "(a whole number >= 1; default 512)" in words
    assert "(one of CPU, GPU, Ascend; default null)" in words
    assert "(true or false; default true)" in words
    assert "(a number >= 0; default 0.0)" in words


def test_required_keys_say_how_they_are_set(from_yaml, tmp_path):
    load_config(["--dataset_path", "x"], required=("dataset_path", "batch_size"))
    with pytest.raises(UserError, match=r"dataset_path is not set \(folder of the training data\)"):
        load_config([], required=("dataset_path",))
    path = tmp_path / "a.yml"
    path.write_text("seed: 1\n")
    with pytest.raises(UserError) as caught:
        load_config(["--config_path", str(path)], required=("class_num",))
    assert f"give --class_num VALUE, or write 'class_num: VALUE' into {path}" in str(caught.value)


def test_zero_and_false_count_as_set():
    load_config(["--mixup", "0", "--save_checkpoint", "no"], required=("mixup", "save_checkpoint"))


def test_batch_size_must_be_a_multiple_of_batch_split():
    message = fault(load_config, ["--batch_size", "10", "--batch_split", "4"])
    assert "batch_size 10" in message
    assert "batch_split 4" in message
    assert load_config(["--batch_size", "12", "--batch_split", "4"]).batch_split == 4


# Faults of the file


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("seed: 1\nlearing_rate: 0.1\n", 2, "unknown key 'learing_rate'"),
        ("seed: 1\nlr_maxx: 0.1\n", 2, "unknown key 'lr_maxx'; did you mean 'lr_max'?"),
        ("config_path: a.yml\n", 1, "unknown key 'config_path'"),
        ("seed: 1\n\n# x\nseed: 1\n", 4, "seed is given twice"),
        ("seed: 1\n'seed': 2\n", 2, "seed is given twice"),
        ("seed: 1\ndata:\n  batch_size: 4\n", 3, "the value of 'data' must be plain text, got a mapping"),
        ("seed: 1\nbatch_size:\n  a: 4\n", 3, "the value of 'batch_size' must be plain text, got a mapping"),
        ("image_mean: [1, 2, [3]]\n", 1, "each entry of 'image_mean' must be plain text, got a sequence"),
        ("[a]: 1\n", 1, "a key must be plain text, got a sequence"),
        ("- seed\n", 1, "expected lines 'key: value', got a sequence"),
        ("\nseed = 1\n", 2, "expected lines 'key: value', got a scalar"),
        ("seed: 1\n\tlog_every: 2\n", 2, "not valid YAML"),
        ("seed: 1\nlog_every 2\nmixup: 1\n", 3, "not valid YAML"),
        ("seed: [1, 2\nmixup: 0\n", 2, "not valid YAML"),
        ("seed: 1\n---\nseed: 2\n", 2, "expected a single document"),
        ("seed: *x\n", 1, "undefined alias 'x'"),
        ("seed: 1\nmixup: \x07\n", 2, "not valid YAML: character '\\x07'"),
        (b"seed: 1\nrun_name: \xff\n", 2, "not UTF-8"),
        ("seed: 1\n".encode("utf-16"), 1, "not UTF-8"),
        ("!!python/object:os.x {seed: 1}\n", 1, "python/object:os.x' is refused"),
        ("!!python/name:os.x : 1\n", 1, "python/name:os.x' is refused"),
        ("seed: !!int 1\n", 1, "int' is refused"),
        ("image_mean: !!python/tuple [1, 2, 3]\n", 1, "python/tuple' is refused"),
        ("image_mean: [1, 2, !!python/name:os.x ]\n", 1, "is refused"),
    ],
)
def test_faults_of_the_file_name_the_line(from_yaml, tmp_path, text, line, words):
    message = fault(from_yaml, text)
    assert message.startswith(f"{tmp_path / 'run.yml'}:{line}: ")
    assert words in message


def test_a_tag_that_would_run_code_is_refused_and_nothing_runs(from_yaml, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = fault(from_yaml, 'seed: !!python/object/apply:os.system ["touch pwned.txt"]\n')
    assert "run.yml:1: the tag 'tag:yaml.org,2002:python/object/apply:os.system' is refused" in message
    assert not Path("pwned.txt").exists()


@pytest.mark.parametrize(
    "text", ["[" * 5000, 'seed: "\\UFFFFFFFF"\n', 'seed: "\\U00110000"\n', "%YAML 2.0\n---\n"]
)
def test_what_breaks_the_yaml_reader_is_one_line_too(from_yaml, text):
    assert "YAML" in fault(from_yaml, text)


def test_aliases_do_not_unfold(from_yaml):
    bomb = "k0: &k0 [x, x]\n" + "".join(f"k{i + 1}: &k{i + 1} [*k{i}, *k{i}]\n" for i in range(99))
    assert ":1: unknown key 'k0'" in fault(from_yaml, bomb)
    assert "must be plain text" in fault(from_yaml, "image_mean: &a [*a]\n")


def test_files_that_cannot_be_read(tmp_path):
    assert "No such file" in fault(load_config, ["--config_path", str(tmp_path / "none.yml")])
    assert "Is a directory" in fault(load_config, ["--config_path", str(tmp_path)])
    large = tmp_path / "large.yml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert f"{large}: larger than" in fault(load_config, ["--config_path", str(large)])


def test_a_key_of_old_that_is_gone_says_what_took_its_place(from_yaml):
    assert "choose the network by backbone" in fault(from_yaml, "vit_config_path: src.vit.VitConfig\n")


# Writing it down

OF_EVERY_TYPE = {
    "int": [("seed", "0"), ("class_num", "null"), ("class_num", "1000")],
    "float": [("lr_max", "1e-05"), ("lr_max", "1e22"), ("weight_decay", "0"), ("mixup", "null")],
    "bool": [("save_checkpoint", "false"), ("save_checkpoint", "true")],
    "str": [("device_target", "cpu"), ("device_target", "null"), ("backbone", "yes"), ("backbone", "1e3")],
    "name": [("run_name", ""), ("run_name", "a: b #c"), ("run_name", "é 🙂 'q' \"d\""), ("run_name", "007")],
    "resume": [("resume", ""), ("resume", "AUTO"), ("resume", "runs/a")],
    "path": [("dataset_path", ""), ("dataset_path", "x"), ("dataset_path", "/a  b/" + "a " * 99 + "\u2028z")],
    "size": [("train_image_size", "7"), ("train_image_size", "7,9"), ("train_image_size", "null")],
    "steps": [("schedule_steps", "0,5,9"), ("schedule_steps", "null")],
    "indices": [("all_reduce_fusion", "30,60"), ("all_reduce_fusion", "7"), ("all_reduce_fusion", "null")],
    "url": [("data_url", "s3://bucket/a b"), ("data_url", "")],
    "epochs": [("decay_epochs", "30,60.5"), ("decay_epochs", "7"), ("decay_epochs", "null")],
    "augment": [("randaugment", "2,9.5"), ("randaugment", "[1, 0]"), ("randaugment", "null")],
    "words": [("freeze", "root, body.block[1-2]"), ("freeze", "null"), ("freeze", "")],
    "triple": [("image_mean", "1,2.5,3"), ("image_mean", "0"), ("image_mean", "null")],
}


def test_the_round_trip_below_covers_every_type():
    assert set(OF_EVERY_TYPE) == set(TYPES) == {key.type for key in SCHEMA.values()}


@pytest.mark.parametrize(("key", "text"), [case for cases in OF_EVERY_TYPE.values() for case in cases])
def test_yaml_text_reads_back_to_the_same_values(from_yaml, key, text):
    config = load_config([f"--{key}={text}"])
    written = config_to_yaml(config)
    again = from_yaml(written)
    assert {**again, "config_path": "", "given": (key,)} == config
    assert type(again[key]) is type(config[key])
    assert set(yaml.safe_load(written)) == set(SCHEMA)


# The table


def test_every_row_can_hold_its_own_default():
    for key in SCHEMA.values():
        text = "null" if key.default in (None, ()) else str(key.default)
        assert key.parse(text) == key.default_value()
        assert key.help


def test_no_key_is_listed_twice_or_hides_a_method_of_the_dictionary():
    names = [key.name for keys in GROUPS.values() for key in keys]
    assert len(names) == len(set(names)) == len(SCHEMA)
    assert not [name for name in names if hasattr(EasyDict, name)]


def test_the_configuration_needs_no_mindspore():
    code = "import sys, src.model_utils.config; sys.exit('mindspore' in sys.modules)"
    root = Path(__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


MODEL_ZOO = """
enable_modelarts: 0
data_url: ""
train_url: ""
checkpoint_url: ""
output_path: "/cache/train"
data_path: "/cache/datasets/imagenet"
load_path: "/cache/model/vit_base_patch32.ckpt"
dataset_path: '/cache/datasets/imagenet/train'
train_image_size: 224
interpolation: 'BILINEAR'
crop_min: 0.05
batch_size: 256
train_num_workers: 14
eval_path: '/cache/datasets/imagenet/val'
eval_image_size: 224
eval_batch_size: 256
eval_interval: 1
eval_offset: -1
eval_num_workers: 12
backbone: 'vit_base_patch32'
class_num: 1001
pretrained: ''
lr_decay_mode: 'cosine'
lr_init: 0.0
lr_max: 0.00355
lr_min: 0.0
max_epoch: 300
warmup_epochs: 40
opt: 'adamw'
beta1: 0.9
beta2: 0.999
weight_decay: 0.05
no_weight_decay_filter: "beta,bias"
gc_flag: 0
loss_scale: 1024
use_label_smooth: 1
label_smooth_factor: 0.1
mixup: 0.2
autoaugment: 1
loss_name: "ce_smooth_mixup"
save_checkpoint: 1
save_checkpoint_epochs: 8
keep_checkpoint_max: 3
save_checkpoint_path: './outputs'
open_profiler: 0
"""


def test_a_recipe_of_the_model_zoo_is_read_as_it_is(from_yaml):
    config = from_yaml(MODEL_ZOO)
    assert config.no_weight_decay_filter == ("beta", "bias")
    assert (config.autoaugment, config.use_label_smooth, config.gc_flag) == (True, True, False)
    assert (config.eval_offset, config.warmup_epochs, config.class_num) == (-1, 40.0, 1001)
