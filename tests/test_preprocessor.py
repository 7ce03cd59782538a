import numpy as np
import pytest
from PIL import Image
from support import SIDECAR, colour_folder

import preprocess
from src import dataset
from src.infer_result import read_labels
from src.model_utils.config import load_config
from src.sidecar import write_sidecar

HOW = SIDECAR["preprocess"]


@pytest.fixture
def prepared(tmp_path):
    """Images and a sidecar; a function that runs preprocess.py on them."""
    colour_folder(tmp_path / "val", per_class=3)
    (tmp_path / "val" / "red" / "0.png").rename(tmp_path / "val" / "red" / "0.JPG")

    def run(*arguments, names=("blue", "green", "red"), class_num=3, folder="out"):
        write_sidecar(tmp_path / "m.mindir.json", {**SIDECAR, "class_num": class_num, "class_names": names})
        return preprocess.main(
            [f"--model_path={tmp_path / 'm.mindir'}", f"--eval_path={tmp_path / 'val'}",
             f"--preprocess_path={tmp_path / folder}", *arguments]
        )  # fmt: skip

    return run


@pytest.mark.parametrize("batch", [2, 512])
def test_the_tensors_are_those_of_the_evaluation(prepared, tmp_path, batch):
    assert prepared(f"--eval_batch_size={batch}") == 0
    labels = read_labels(tmp_path / "out")
    assert labels["red/0.JPG"] == 2
    assert len(labels) == 9
    cfg = load_config([f"--eval_path={tmp_path / 'val'}"])
    samples = dataset.open_eval(cfg, None)
    ((images, wanted),) = dataset.eval_batches(cfg, samples, HOW)
    for index, name in enumerate(samples.names):
        found = np.fromfile(tmp_path / "out" / "images" / f"{name}.bin", np.float32)
        np.testing.assert_array_equal(found.reshape(3, 12, 16), images[index])
        assert labels[name] == wanted[index]


def test_labels_follow_the_class_names_of_the_network(prepared, tmp_path):
    assert prepared(names=("red", "other", "green", "blue"), class_num=4) == 0
    labels = read_labels(tmp_path / "out")
    assert (labels["red/0.JPG"], labels["green/1.png"], labels["blue/2.png"]) == (0, 2, 3)


def test_a_broken_image_stops_or_is_left_out(prepared, tmp_path, capsys):
    (tmp_path / "val" / "green" / "1.png").write_bytes(b"\x89PNG")
    assert prepared() == 1
    assert "green/1.png" in capsys.readouterr().err
    assert not (tmp_path / "out" / "labels.json").exists()
    assert prepared("--on_bad_image=skip", folder="again") == 0
    assert "green/1.png" not in read_labels(tmp_path / "again")


def test_tensors_of_another_run_are_not_mixed_in(prepared, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "out" / "mine.png")
    assert prepared() == 1
    assert "is not empty; choose another preprocess_path" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.png"]


def test_other_classes_than_the_networks_are_refused(prepared, capsys):
    assert prepared(names=("blue", "green")) == 1
    assert "unknown: red" in capsys.readouterr().err
    assert prepared(names=None, class_num=4) == 1
    assert "the network has 4 classes and the data 3" in capsys.readouterr().err
