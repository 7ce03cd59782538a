import numpy as np
import pytest
from support import colour_folder

from src import dataset
from src.errors import MissingDataError, UserError
from src.model_utils.config import load_config


def config(**keys):
    return load_config([f"--{key}={value}" for key, value in keys.items()])


def recipe_of(cfg, image_size, num_images, **source):
    return dataset.make_recipe(cfg, image_size, num_images=num_images, source=source)


@pytest.mark.parametrize(
    ("keys", "image_size", "expected"),
    [
        ({}, (32, 32), ((160, 160), (128, 128), (128, 128))),
        ({}, (375, 500), ((512, 512), (480, 480), (480, 480))),
        ({"train_image_size": 64}, (32, 32), ((80, 80), (64, 64), (64, 64))),
        ({"train_image_size": "48,96"}, (32, 32), ((60, 120), (48, 96), (48, 96))),
        ({"train_resize_size": 40}, (32, 32), ((40, 40), (32, 32), (32, 32))),
        (
            {"train_resize_size": 36, "train_image_size": 32, "eval_image_size": 33},
            (500, 500),
            ((36, 36), (32, 32), (33, 33)),
        ),
    ],
)
def test_what_is_not_given_follows_from_the_hyperrule(keys, image_size, expected):
    recipe = recipe_of(config(**keys), image_size, 100)
    assert (recipe.resize, recipe.crop, recipe.eval_crop) == expected


def test_schedule_and_mixup_can_be_given():
    given = config(schedule_steps="2,5,9", mixup=0.0)
    recipe = recipe_of(given, (32, 32), 50_000)
    assert (recipe.steps, recipe.mixup) == ((2, 5, 9), 0.0)
    recipe = recipe_of(config(), (32, 32), 50_000)
    assert (recipe.steps[-1], recipe.mixup) == (10_000, 0.1)


def test_the_normalisation_is_that_of_the_weights_unless_given(caplog):
    assert recipe_of(config(), (32, 32), 9).mean == (127.5,) * 3
    assert recipe_of(config(), (32, 32), 9, image_mean=[1, 2, 3], image_std=[4, 5, 6]).std == (4, 5, 6)
    given = recipe_of(config(image_mean=120), (32, 32), 9, image_mean=[1, 2, 3])
    assert given.mean == (120.0,) * 3
    assert "image_mean is [120.0, 120.0, 120.0], but the weights were trained with [1, 2, 3]" in caplog.text


def test_a_recipe_is_given_again_by_its_keys():
    recipe = recipe_of(config(lr_max=0.01, interpolation="bicubic"), (32, 32), 25_000)
    text = {key: value if not isinstance(value, (list, tuple)) else ",".join(map(str, value))
            for key, value in recipe.as_keys().items()}  # fmt: skip
    assert recipe_of(config(lr_max=0.01, **text), (500, 500), 9) == recipe


def test_a_set_of_few_examples_is_small_for_the_hyperrule(tmp_path):
    root = colour_folder(tmp_path / "train", per_class=5)
    cfg = config(dataset_path=root, examples_per_class=2)
    samples = dataset.open_train(cfg)
    indices = dataset.few_shot(cfg, samples)
    assert np.bincount(samples.labels[indices]).tolist() == [2, 2, 2]
    assert dataset.few_shot(config(dataset_path=root), samples) is None


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
