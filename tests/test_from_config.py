import pytest

from src.from_config import loss_of
from src.model_utils.config import load_config


def config(**keys):
    return load_config([f"--{key}={value}" for key, value in keys.items()])


@pytest.mark.parametrize(
    ("keys", "smoothing"),
    [
        ({}, 0.0),
        ({"loss_name": "ce"}, 0.0),
        ({"use_label_smooth": True}, 0.1),
        ({"loss_name": "ce_smooth", "label_smooth_factor": 0.3}, 0.3),
        ({"loss_name": "ce_smooth_mixup", "use_label_smooth": False}, 0.0),
    ],
)
def test_a_loss_that_smooths_by_its_name_smooths(keys, smoothing):
    assert loss_of(config(**keys)).smoothing == smoothing
