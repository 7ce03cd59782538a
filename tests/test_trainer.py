import pytest

from src.errors import UserError
from src.from_config import loss_of
from src.model_utils.config import load_config
from src.trainer import _due


def config(**keys):
    return load_config([f"--{key}={value}" for key, value in keys.items()])


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
    due = _due(config(**keys), 3, 12)
    assert [step for step in range(1, 13) if due(step)] == steps


def test_epochs_and_steps_between_evaluations_exclude_each_other():
    with pytest.raises(UserError, match="eval_every counts steps and eval_interval epochs"):
        _due(config(eval_every=3, eval_interval=1), 3, 12)
    with pytest.raises(UserError, match="eval_offset belongs to eval_interval"):
        _due(config(eval_offset=2), 3, 12)


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
