from pathlib import Path

import pytest

from src.model_utils.config import load_config
from src.network import canonical_name

CONFIG = Path(__file__).parents[1] / "config"
RECIPES = sorted(CONFIG.glob("*.yml"))


@pytest.mark.parametrize("path", RECIPES, ids=[path.stem for path in RECIPES])
def test_a_recipe_loads_and_says_what_it_is(path):
    cfg = load_config([f"--config_path={path}"])
    assert canonical_name(cfg.backbone)
    header = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    for word in ("Hardware:", "Time:", "Expected:", "Command:"):
        assert word in header


def test_there_are_recipes():
    assert len(RECIPES) >= 5
