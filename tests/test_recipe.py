import math

import numpy as np
import pytest

from src.errors import UserError
from src.model_utils.config import load_config
from src.recipe import eval_size, evaluations_due, learning_rates, make_recipe


def config(**keys):
    return load_config([f"--{key}={value}" for key, value in keys.items()])


def recipe_of(cfg, image_size=(32, 32), num_images=100, *, name="bit_tiny", **source):
    return make_recipe(cfg, name, image_size, num_images=num_images, source=source)


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
        ({"crop_min": 0.2}, (32, 32), (None, (128, 128), (128, 128))),
    ],
)
def test_bits_sizes_follow_from_the_hyperrule(keys, image_size, expected):
    recipe = recipe_of(config(**keys), image_size)
    assert (recipe.train_resize_size, recipe.train_image_size, recipe.eval_image_size) == expected


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("vit_base_patch32", {}, (None, (384, 384), 0.05)),
        ("vit_huge_patch14", {}, (None, (378, 378), 0.05)),
        ("vit_base_patch32", {"train_image_size": "64,96"}, (None, (64, 96), 0.05)),
        (
            "vit_base_patch32",
            {"train_resize_size": 448, "train_image_size": 384},
            ((448, 448), (384, 384), 0),
        ),
        ("vit_base_patch32", {"train_image_size": 64, "crop_min": 0}, ((64, 64), (64, 64), 0)),
    ],
)
def test_vits_sizes_are_googles(name, keys, expected):
    recipe = recipe_of(config(**keys), (375, 500), name=name)
    assert (recipe.train_resize_size, recipe.train_image_size, recipe.crop_min) == expected


@pytest.mark.parametrize(
    ("name", "num_images", "expected"),
    [
        ("bit_tiny", 19_999, ("bit_staircase", 0.003, (100, 200, 300, 400, 500), 0.0, 0.0)),
        ("bit_tiny", 50_000, ("bit_staircase", 0.003, (500, 3000, 6000, 9000, 10_000), 0.1, 0.0)),
        ("vit_base_patch16", 2_040, ("cosine", 0.03, (100, 500), 0.0, 1.0)),
        ("vit_base_patch16", 50_000, ("cosine", 0.03, (500, 10_000), 0.0, 1.0)),
        ("vit_base_patch16", 1_281_167, ("cosine", 0.03, (500, 20_000), 0.0, 1.0)),
    ],
)
def test_the_family_and_the_number_of_images_decide_the_rest(name, num_images, expected):
    recipe = recipe_of(config(), (375, 500), num_images, name=name)
    assert (
        recipe.lr_decay_mode,
        recipe.lr_max,
        recipe.schedule_steps,
        recipe.mixup,
        recipe.clip_norm,
    ) == expected


def test_everything_can_be_given():
    given = config(schedule_steps="2,5,9", mixup=0.0, clip_norm=3, lr_decay_mode="steps", lr_max=0.5)
    recipe = recipe_of(given, num_images=50_000)
    assert (recipe.schedule_steps, recipe.mixup, recipe.clip_norm) == ((2, 5, 9), 0.0, 3.0)
    assert (recipe.lr_decay_mode, recipe.lr_max) == ("steps", 0.5)


def test_epochs_make_a_cosine_and_steps_the_staircase():
    cfg = config(max_epoch=4, warmup_epochs=1, lr_max=0.1, lr_min=0.01, lr_init=0.02)
    recipe = recipe_of(cfg)
    assert (recipe.lr_decay_mode, recipe.schedule_steps) == ("cosine", None)
    rates = learning_rates(cfg, recipe, 2, 1)
    half = [0.01 + 0.045 * (1 + math.cos(math.pi * t / 6)) for t in range(1, 7)]
    np.testing.assert_allclose(rates, [0.06, 0.1, *half], rtol=1e-6)
    cfg = config(schedule_steps="1,2,4")
    expected = [0, 0.003, 0.003, 0.0003]
    np.testing.assert_allclose(learning_rates(cfg, recipe_of(cfg), 7, 1), expected, rtol=1e-6)
    cfg = config(max_epoch=4, decay_epochs="1.5,3", lr_decay_mode="steps", lr_max=1, decay_rate=0.5)
    expected = [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    np.testing.assert_allclose(learning_rates(cfg, recipe_of(cfg), 2, 1), expected)
    cfg = config(schedule_steps="0,2", lr_decay_mode="poly", lr_max=1, poly_power=3)
    np.testing.assert_allclose(learning_rates(cfg, recipe_of(cfg), 2, 1), [0.125, 0])


def test_rates_are_scaled_to_the_batch_when_told():
    keys = {"lr_max": 0.1, "lr_min": 0.01, "lr_init": 0.02, "scale_lr": 512}
    cfg = config(max_epoch=2, warmup_epochs=1, **keys)
    np.testing.assert_allclose(learning_rates(cfg, recipe_of(cfg), 1, 1024), [0.2, 0.02], rtol=1e-6)
    np.testing.assert_allclose(learning_rates(cfg, recipe_of(cfg), 2, 256)[0], 0.03, rtol=1e-6)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"train_resize_size": 40, "crop_min": 0.1}, "leave out crop_min or train_resize_size"),
        ({"max_epoch": 3, "schedule_steps": "1,2"}, "max_epoch and schedule_steps"),
        ({"warmup_epochs": 3}, "warmup_epochs needs max_epoch"),
        ({"decay_epochs": 3}, "decay_epochs needs max_epoch"),
        ({"schedule_steps": "1,2,3", "lr_decay_mode": "cosine"}, r"cosine has no decay steps, and \[2\]"),
        ({"max_epoch": 3, "decay_epochs": 2}, "cosine has no decay steps"),
        ({"opt": "adamw"}, "lr_max is not set; the default belongs to SGD"),
    ],
)
def test_keys_that_deny_each_other_are_refused(keys, text):
    with pytest.raises(UserError, match=text):
        recipe_of(config(**keys))


def test_adamw_is_not_clipped_unless_told():
    assert recipe_of(config(opt="adamw", lr_max=0.001), name="vit_nano_patch8").clip_norm == 0
    assert recipe_of(config(opt="adamw", lr_max=0.001, clip_norm=1), name="vit_nano_patch8").clip_norm == 1


def test_the_normalisation_is_that_of_the_weights_unless_given(caplog):
    assert recipe_of(config()).image_mean == (127.5,) * 3
    assert recipe_of(config(), image_mean=[1, 2, 3], image_std=[4, 5, 6]).image_std == (4, 5, 6)
    given = recipe_of(config(image_mean=120), image_mean=[1, 2, 3])
    assert given.image_mean == (120.0,) * 3
    assert "image_mean is (120.0, 120.0, 120.0), but the weights were trained with [1, 2, 3]" in caplog.text


def test_filter_and_crop_are_those_of_the_weights_unless_given(caplog):
    source = {"interpolation": "BICUBIC", "eval_crop_ratio": 0.875}
    recipe = recipe_of(config(), **source)
    assert (recipe.interpolation, recipe.eval_crop_ratio) == ("BICUBIC", 0.875)
    assert not caplog.text
    recipe = recipe_of(config(interpolation="nearest", eval_crop_ratio=0), **source)
    assert (recipe.interpolation, recipe.eval_crop_ratio) == ("NEAREST", 0.0)
    assert "interpolation is NEAREST, but the weights were trained with BICUBIC" in caplog.text
    assert "eval_crop_ratio is 0.0" in caplog.text


def test_a_vit_is_not_evaluated_at_another_size_while_it_trains():
    with pytest.raises(UserError, match=r"leave out eval_image_size, and let eval\.py"):
        recipe_of(config(train_image_size=32, eval_image_size=48), name="vit_nano_patch8")
    assert recipe_of(config(train_image_size=32, eval_image_size=48)).eval_image_size == (48, 48)


@pytest.mark.parametrize("name", ["bit_tiny", "vit_tiny_patch16"])
def test_a_recipe_is_given_again_by_its_keys(name):
    keys = {"lr_max": 0.01, "interpolation": "bicubic", "eval_crop_ratio": 0.875}
    recipe = recipe_of(config(**keys), (32, 32), 25_000, name=name)
    text = {key: ",".join(map(str, value)) if isinstance(value, tuple) else value
            for key, value in recipe.as_keys().items() if value is not None}  # fmt: skip
    assert recipe_of(config(**text), (500, 500), 9, name=name) == recipe


@pytest.mark.parametrize(
    ("name", "keys", "record", "expected"),
    [
        ("bit_r50x1", {}, {}, (480, 480)),
        ("bit_r50x1", {}, {"eval_image_size": [64, 96]}, (64, 96)),
        ("bit_r50x1", {"eval_image_size": 100}, {"eval_image_size": [64, 96]}, (100, 100)),
        ("vit_base_patch16", {}, {"grid": 14}, (224, 224)),
        ("vit_base_patch16", {}, {"grid": [14, 7]}, (224, 112)),
        ("vit_base_patch16", {}, {}, (384, 384)),
    ],
)
def test_the_size_to_evaluate_at_is_that_of_the_weights_unless_given(name, keys, record, expected):
    assert eval_size(config(**keys), record, name, (375, 500)) == expected


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        ({"eval_interval": 2}, [6, 12]),  # the last epoch of each two
        ({"eval_interval": 2, "eval_offset": 0}, [3, 9]),  # the first
        ({"eval_interval": 3, "eval_offset": 1}, [6]),
        ({"eval_interval": 1}, [3, 6, 9, 12]),
        ({"eval_every": 5}, [5, 10]),
        ({"eval_every": 0}, []),
        ({}, list(range(1, 13))),
    ],
)
def test_evaluations_are_due_by_epochs_or_by_steps(keys, steps):
    due = evaluations_due(config(**keys), 3, 12)
    assert [step for step in range(1, 13) if due(step)] == steps


def test_epochs_and_steps_between_evaluations_exclude_each_other():
    with pytest.raises(UserError, match="eval_every counts steps and eval_interval epochs"):
        evaluations_due(config(eval_every=3, eval_interval=1), 3, 12)
    with pytest.raises(UserError, match="eval_offset belongs to eval_interval"):
        evaluations_due(config(eval_offset=2), 3, 12)
