import numpy as np
import pytest

from src.bit_hyperrule import schedule_steps
from src.errors import UserError
from src.lr_generator import bit_staircase


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        *[(0, 0.0), (1, 6e-6), (499, 0.002994), (500, 0.003), (3000, 0.003), (3001, 3e-4)],
        *[(6000, 3e-4), (6001, 3e-5), (9000, 3e-5), (9001, 3e-6), (9999, 3e-6)],
    ],
)
def test_bit_staircase_has_the_published_rates_for_50000_images(step, rate):
    lr = bit_staircase(0.003, schedule_steps(50_000))
    assert lr.dtype == np.float32
    assert lr.shape == (10_000,)
    np.testing.assert_allclose(lr[step], rate, rtol=1e-6)


def test_bit_staircase_without_warmup_starts_at_the_peak():
    np.testing.assert_allclose(bit_staircase(0.5, [0, 2, 4]), [0.5, 0.5, 0.5, 0.05], rtol=1e-6)


def test_bit_staircase_may_be_warmup_and_nothing_else():
    np.testing.assert_allclose(bit_staircase(0.4, [3, 4]), [0, 0.4 / 3, 0.8 / 3, 0.4], rtol=1e-6)


@pytest.mark.parametrize("steps", [[], [5], [5, 5], [5, 4], [-1, 4], [1, 9, 7, 10]])
def test_steps_that_do_not_increase_are_refused(steps):
    with pytest.raises(UserError, match="strictly increasing"):
        bit_staircase(0.1, steps)
