import numpy as np
import pytest
from PIL import Image
from support import colour_folder

from src import dataset
from src.errors import MissingDataError, UserError
from src.model_utils.config import load_config
from src.recipe import make_recipe


def config(**keys):
    return load_config([f"--{key}={value}" for key, value in keys.items()])


def test_a_set_of_few_examples_is_small_for_the_hyperrule(tmp_path):
    root = colour_folder(tmp_path / "train", per_class=5)
    cfg = config(dataset_path=root, examples_per_class=2)
    samples = dataset.open_train(cfg)
    indices = dataset.few_shot(cfg, samples)
    assert np.bincount(samples.labels[indices]).tolist() == [2, 2, 2]
    assert dataset.few_shot(config(dataset_path=root), samples) is None


def test_reduced_decoding_is_for_training_alone_and_can_be_switched_off(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    photo = Image.fromarray(noise).resize((400, 300), Image.Resampling.BICUBIC)
    for place in ("train/a", "train/b", "val/a", "val/b"):
        (tmp_path / place).mkdir(parents=True)
        photo.save(tmp_path / place / "1.jpg")
    full = np.asarray(Image.open(tmp_path / "val/a/1.jpg").resize((50, 40), Image.Resampling.BILINEAR))
    for reduced in (False, True):
        cfg = config(dataset_path=tmp_path, reduced_decoding=reduced)
        train, box = dataset.open_train(cfg).image(0).part((40, 50))
        evaluation = dataset.open_eval(cfg, None).image(0)
        assert np.array_equal(train.resize((50, 40), Image.Resampling.BILINEAR, box), full) == (not reduced)
        assert np.array_equal(evaluation.resize((50, 40), Image.Resampling.BILINEAR), full)


def test_two_augmentations_at_once_are_refused(tmp_path):
    cfg = config(dataset_path=colour_folder(tmp_path / "train"), autoaugment=1, randaugment="2,9")
    samples = dataset.open_train(cfg)
    recipe = make_recipe(cfg, "bit_tiny", (20, 24), num_images=12, source={})
    with pytest.raises(UserError, match="autoaugment and randaugment are set"):
        dataset.train_stream(cfg, samples, recipe, indices=None, class_num=3)


@pytest.mark.parametrize("key", ["dataset_path", "eval_path"])
def test_a_folder_that_is_not_set_is_named(key):
    opener = {"dataset_path": dataset.open_train, "eval_path": lambda cfg: dataset.open_eval(cfg, None)}[key]
    with pytest.raises(UserError, match=f"{key} is not set; .*--{key} FOLDER"):
        opener(config())


def cifar10(root, *, test):
    """Two records a file; the label is the first byte of each."""
    root.mkdir()
    record = np.zeros((2, 3073), np.uint8)
    for name, label in (("data_batch_1.bin", 3), ("test_batch.bin", 7)):
        if test or name != "test_batch.bin":
            record[:, 0] = label
            (root / name).write_bytes(record.tobytes())
    return config(dataset_path=root)


def test_cifar_is_recognised_and_its_splits_are_told_apart(tmp_path):
    cfg = cifar10(tmp_path / "data", test=True)
    samples = dataset.open_train(cfg)
    assert samples.labels.tolist() == [3, 3]
    assert dataset.open_eval(cfg, samples.class_names).labels.tolist() == [7, 7]


def test_images_that_are_missing_are_told_from_images_that_are_wrong(tmp_path):
    with pytest.raises(MissingDataError):
        dataset.open_eval(cifar10(tmp_path / "cifar", test=False), None)
    root = colour_folder(tmp_path / "colours")
    with pytest.raises(MissingDataError):
        dataset.open_eval(config(dataset_path=root), None)
    with pytest.raises(UserError, match="unknown: red") as error:
        dataset.open_eval(config(eval_path=root), ["blue", "green"])
    assert not isinstance(error.value, MissingDataError)
