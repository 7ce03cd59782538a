import re
from pathlib import Path

import numpy as np
import pytest
from support import colour_folder

from src.model_utils.config import load_config
from src.network import canonical_name
from src.trainer import train
from src.vit_map import patch_size

CONFIG = Path(__file__).parents[1] / "config"
RECIPES = sorted(CONFIG.glob("*.yml"))
TRAINING = [path for path in RECIPES if re.search(r"train\.py|run_train|quickstart\.sh", path.read_text())]


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=[path.stem for path in paths])


@named(RECIPES)
def test_a_recipe_loads_and_says_what_it_is(path):
    cfg = load_config([f"--config_path={path}"])
    assert path not in TRAINING or canonical_name(cfg.backbone)
    header = path.read_text(encoding="utf-8").split("\n\n")[0]
    if "a batch of 8 x" in header:  # one device would train at the rate of eight
        assert "run_train_distribute.sh 8" in header or cfg.enable_modelarts
        assert cfg.scale_lr == 8 * cfg.batch_size
    assert all(line.startswith("#") for line in header.splitlines())
    for word in ("Hardware:", "Time:", "Expected:", "Command:"):
        assert word in header
    assert path.name in header or "quickstart.sh" in header


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """16 images a pass: one step is an epoch."""
    root = tmp_path_factory.mktemp("colours")
    colour_folder(root / "train", classes=("blue", "green"), per_class=8)
    colour_folder(root / "val", classes=("blue", "green"), per_class=2)
    return root


@named(TRAINING)
def test_a_recipe_trains_two_steps_of_its_small_variant(path, images, tmp_path):
    recipe = load_config([f"--config_path={path}"])
    small = "vit_nano_patch8" if patch_size(canonical_name(recipe.backbone)) else "bit_tiny"
    keys = {"backbone": small, "dataset": "imagefolder", "dataset_path": images, "eval_path": images / "val"}
    keys.update(
        batch_size=16, train_image_size=16, eval_image_size=16, eval_batch_size=4, examples_per_class="null"
    )
    keys.update(train_num_workers=1, eval_num_workers=1, device_target="CPU", save_checkpoint_path=tmp_path)
    if recipe.train_resize_size:
        keys["train_resize_size"] = 18
    if recipe.max_epoch:
        keys.update(max_epoch=2, warmup_epochs=1)
    else:
        keys["schedule_steps"] = "1,2"
    result = train(load_config([f"--config_path={path}", *(f"--{k}={v}" for k, v in keys.items())]))
    assert len(result.losses) == 2
    assert np.isfinite(result.losses).all()
    assert result.last["samples"] == 4


def test_there_are_recipes():
    assert len(RECIPES) >= 17
    assert {path.stem for path in RECIPES} - {path.stem for path in TRAINING} == {"vit_eval", "vit_export"}
