import json

import numpy as np
import pytest
from support import SIDECAR

import postprocess
from src.errors import UserError
from src.infer_result import judge, read_labels, read_logits, write_labels, write_tensors
from src.sidecar import write_sidecar

LABELS = {"a/x.png": 0, "b/x.png": 1, "b/x.JPG": 2, "c/n_0.5.png": 1}


def write_results(folder, logits):
    for name, row in logits.items():
        path = folder / f"{name}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(np.array(row, np.float32).tobytes())


def one_hot(labels, classes):
    return {name: np.eye(classes)[label] for name, label in labels.items()}


def test_tensors_keep_names_and_values(tmp_path):
    rows = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    assert write_tensors(tmp_path, [(["a/x.png", "b/x.png"], rows[::-1]), ([], rows[:0])]) == 2
    found = np.fromfile(tmp_path / "images" / "a" / "x.png.bin", np.float32).reshape(3, 4, 5)
    np.testing.assert_array_equal(found, rows[1])


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", ""])
def test_a_name_never_leads_out_of_the_folder(tmp_path, name):
    with pytest.raises(UserError, match="no name of an image below a folder"):
        write_tensors(tmp_path, [([name], np.zeros((1, 3, 1, 1)))])


def test_equal_names_in_two_classes_are_two_images(tmp_path):
    logits = one_hot(LABELS, 6)
    logits["b/x.png"] = [0, 0.5, 0, 0, 0, 1]  # second best
    write_results(tmp_path, logits)
    (tmp_path / "notes.txt").write_text("a stray file")
    assert judge(tmp_path, LABELS, 6) == {"top1": 0.75, "top5": 1.0, "samples": 4}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda f: (f / "a" / "x.png.bin").unlink(), "1 results of 4 are missing, such as a/x.png.bin"),
        (
            lambda f: (f / "d.bin").write_bytes(b""),
            "1 results of 4 are of no image in labels.json, such as d.bin",
        ),
        (lambda f: (f / "a" / "x.png.bin").write_bytes(bytes(10)), "has 10 bytes, expected 12: 3 float32"),
    ],
)
def test_a_missing_an_extra_and_a_short_result_are_reported(tmp_path, change, text):
    write_results(tmp_path, one_hot(LABELS, 3))
    change(tmp_path)
    with pytest.raises(UserError, match=text):
        judge(tmp_path, LABELS, 3)


def test_labels_beyond_the_classes_and_a_missing_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist; run the C"):
        judge(tmp_path / "none", LABELS, 3)
    write_results(tmp_path, one_hot(LABELS, 3))
    with pytest.raises(UserError, match="a label is 2, but the network has 2 classes"):
        judge(tmp_path, LABELS, 2)
    with pytest.raises(UserError, match="cannot be read"):
        read_logits(tmp_path / "no.bin", 3)


def test_labels_are_read_back(tmp_path):
    write_labels(tmp_path, LABELS)
    assert read_labels(tmp_path) == LABELS
    for text, error in (
        ("{", "cannot be read"),
        ("[1]", "no table"),
        ('{"a": -1}', "no table"),
        ("\0", "cannot"),
    ):
        (tmp_path / "labels.json").write_text(text)
        with pytest.raises(UserError, match=error):
            read_labels(tmp_path)
    with pytest.raises(UserError, match=r"run preprocess\.py to its end"):
        read_labels(tmp_path / "none")


def sidecar(path, class_num, **changes):
    write_sidecar(path, {**SIDECAR, "class_num": class_num, **changes})


def run(tmp_path, classes, logits):
    write_results(tmp_path / "results", logits)
    write_labels(tmp_path, {name: min(label, classes - 1) for name, label in LABELS.items()})
    sidecar(tmp_path / "m.mindir.json", classes)
    arguments = [f"--model_path={tmp_path / 'm.mindir'}", f"--preprocess_path={tmp_path}"]
    return postprocess.main([*arguments, f"--result_path={tmp_path / 'results'}"])


def test_the_line_is_the_one_that_users_grep(tmp_path, capsys):
    logits = one_hot(LABELS, 7)
    logits["a/x.png"] = np.arange(7)
    assert run(tmp_path, 7, logits) == 0
    assert capsys.readouterr().out == "Total data: 4, top1 accuracy: 0.75, top5 accuracy: 0.75\n"


def test_two_classes_have_no_top5(tmp_path, capsys):
    assert run(tmp_path, 2, one_hot({name: min(label, 1) for name, label in LABELS.items()}, 2)) == 0
    assert capsys.readouterr().out == "Total data: 4, top1 accuracy: 1.0, top5 accuracy: n/a (2 classes)\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "is missing; export.py writes it"),
        ("{", "cannot be read"),
        ("[]", "everything is wrong"),
        ('{"format": 1}', "network is wrong"),
        (json.dumps({**SIDECAR, "format": 1, "class_num": 3, "class_names": 5}), "class_names is wrong"),
        (json.dumps({**SIDECAR, "format": 1, "class_num": 0}), "class_num is wrong"),
        (json.dumps({**SIDECAR, "format": True, "class_num": 3}), "format is wrong"),
        (
            json.dumps({**SIDECAR, "format": 1, "class_num": 3, "input": {"shape": [1, 3, 16, 12]}}),
            "input is",
        ),
        (json.dumps({**SIDECAR, "format": 1, "class_num": 3, "input": "x"}), "input is wrong"),
        *[
            (
                json.dumps(
                    {
                        **SIDECAR,
                        "format": 1,
                        "class_num": 3,
                        "preprocess": {**SIDECAR["preprocess"], key: value},
                    }
                ),
                "preprocess is wrong",
            )
            for key, value in [
                ("image_mean", None),
                ("image_std", [1, 2]),
                ("eval_image_size", [12, 0]),
                ("eval_image_size", "x"),
                ("interpolation", "CUBE"),
                ("eval_crop_ratio", 2),
            ]
        ],
        ("null", "everything is wrong"),
    ],
)
def test_a_sidecar_that_cannot_be_used_is_one_line(tmp_path, text, error, capsys):
    if text is not None:
        (tmp_path / "m.mindir.json").write_text(text)
    assert postprocess.main([f"--model_path={tmp_path / 'm.mindir'}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert error in line


def test_a_sidecar_of_a_later_version_is_refused(tmp_path, capsys):
    sidecar(tmp_path / "m.mindir.json", 3, format=2)
    assert json.loads((tmp_path / "m.mindir.json").read_text())["format"] == 2
    assert postprocess.main([f"--model_path={tmp_path / 'm.mindir'}"]) == 1
    assert "has format 2, this program knows 1" in capsys.readouterr().err
