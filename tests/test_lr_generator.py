import numpy as np
import pytest

from src.bit_hyperrule import schedule_steps
from src.errors import UserError
from src.lr_generator import MODES, bit_staircase, get_lr


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


def last_of_epoch(lr, epoch, steps_per_epoch):
    return f"{lr[(epoch + 1) * steps_per_epoch - 1]:.6f}"


def test_the_published_vit_logs_show_these_rates():
    """8 devices and 1, 300 epochs. In float64 the 0.0001775 of epoch 1 would be printed as 0.000178."""
    eight = get_lr("cosine", lr_max=0.00355, max_epoch=300, steps_per_epoch=625, warmup_epochs=40)
    one = get_lr("cosine", lr_max=0.00044375, max_epoch=300, steps_per_epoch=5004, warmup_epochs=40)
    assert (eight.shape, one.shape) == ((187_500,), (1_501_200,))
    assert eight.dtype == np.float32
    assert [last_of_epoch(eight, epoch, 625) for epoch in (0, 1, 299)] == ["0.000089", "0.000177", "0.000000"]
    assert [last_of_epoch(one, epoch, 5004) for epoch in (0, 1)] == ["0.000011", "0.000022"]


@pytest.mark.parametrize(
    ("mode", "rates"),
    [  # a warm-up of 2 steps from 0.1 to 0.9, then t = 1/4, 2/4, 3/4, 1 down to 0.1
        ("cosine", [0.5, 0.9, 0.1 + 0.4 * (1 + 0.5**0.5), 0.5, 0.1 + 0.4 * (1 - 0.5**0.5), 0.1]),
        ("poly", [0.5, 0.9, 0.1 + 0.8 * 27 / 64, 0.1 + 0.8 / 8, 0.1 + 0.8 / 64, 0.1]),
        ("linear", [0.5, 0.9, 0.7, 0.5, 0.3, 0.1]),
        ("steps", [0.5, 0.9, 0.9, 0.45, 0.225, 0.225]),
    ],
)
def test_each_mode_has_the_rates_computed_by_hand(mode, rates):
    lr = get_lr(
        mode,
        lr_max=0.9,
        lr_init=0.1,
        lr_min=0.1,
        max_epoch=3,
        steps_per_epoch=2,
        warmup_epochs=1,
        decay_epochs=(1.5, 2),
        decay_rate=0.5,
        power=3,
    )
    np.testing.assert_allclose(lr, rates, rtol=1e-6)


def test_poly_is_quadratic_by_default():
    lr = get_lr("poly", lr_max=1.6, max_epoch=4, steps_per_epoch=1)
    np.testing.assert_allclose(lr, [0.9, 0.4, 0.1, 0], rtol=1e-6)


def test_long_runs_equal_the_formulas_in_float64():
    t = np.arange(1, 7001) / 7000
    shares = {"cosine": (1 + np.cos(np.pi * t)) / 2, "poly": (1 - t) ** 2, "linear": 1 - t}
    for mode, share in shares.items():
        lr = get_lr(mode, lr_max=0.03, lr_min=1e-5, max_epoch=100, steps_per_epoch=77, warmup_epochs=700 / 77)
        np.testing.assert_allclose(lr[:700], 0.03 * np.arange(1, 701) / 700, rtol=1e-6)
        np.testing.assert_allclose(lr[700:], 1e-5 + (0.03 - 1e-5) * share, rtol=1e-6)


@pytest.mark.parametrize("mode", ["cosine", "poly", "linear"])
@pytest.mark.parametrize("lr_min", [0.0, 1e-5, 0.3])
def test_the_last_step_has_exactly_the_lowest_rate(mode, lr_min):
    lr = get_lr(mode, lr_max=0.3, lr_min=lr_min, max_epoch=3, steps_per_epoch=7, warmup_epochs=1)
    assert lr[-1] == np.float32(lr_min)
    assert (lr[7:] >= np.float32(lr_min)).all()


def test_steps_decay_in_the_step_after_each_epoch_and_never_below_the_floor():
    options = {"lr_max": 1.0, "max_epoch": 8, "steps_per_epoch": 1, "warmup_epochs": 2, "lr_min": 0.005}
    lr = get_lr("steps", decay_epochs=[6, 3, 5], **options)  # in any order
    np.testing.assert_allclose(lr, [0.5, 1, 1, 0.1, 0.1, 0.01, 0.005, 0.005], rtol=1e-6)
    assert (get_lr("steps", **options)[1:] == 1).all()


@pytest.mark.parametrize("mode", ["cosine", "poly", "steps", "linear"])
@pytest.mark.parametrize(("warmup", "ramp"), [(0, []), (4, [1, 2, 3, 4]), (10, range(1, 11)), (0.4, [])])
def test_the_warm_up_may_be_nothing_or_the_whole_run(mode, warmup, ramp):
    lr = get_lr(mode, lr_max=0.3, max_epoch=10, steps_per_epoch=1, warmup_epochs=warmup)
    assert lr.shape == (10,)
    assert np.isfinite(lr).all()
    np.testing.assert_allclose(lr[: len(ramp)], np.array(ramp) * 0.3 / max(len(ramp), 1), rtol=1e-6)
    assert len(ramp) < 10 or lr[-1] == np.float32(0.3)


@pytest.mark.parametrize("mode", MODES)
def test_half_an_epoch_of_warm_up_is_half_of_its_steps(mode):
    lr = get_lr(mode, lr_max=0.8, max_epoch=2, steps_per_epoch=8, warmup_epochs=0.5)
    first = [0, 0.2, 0.4, 0.6, 0.8] if mode == "bit_staircase" else [0.2, 0.4, 0.6, 0.8]
    np.testing.assert_allclose(lr[: len(first)], first, rtol=1e-6)


def test_half_an_epoch_may_be_trained():
    assert get_lr("linear", lr_max=0.8, max_epoch=0.5, steps_per_epoch=6).shape == (3,)


def test_one_step_of_each_mode_is_finite():
    for mode in MODES:
        lr = get_lr(mode, lr_max=0.2, max_epoch=1, steps_per_epoch=1)
        assert lr.tolist() == [np.float32(0.2) if mode in ("steps", "bit_staircase") else 0]


def test_bit_staircase_is_reached_by_its_name():
    warmup, *decays, end = schedule_steps(50_000)
    options = {"max_epoch": end, "steps_per_epoch": 1, "warmup_epochs": warmup, "decay_epochs": decays}
    by_name = get_lr("bit_staircase", lr_max=0.003, **options)
    assert np.array_equal(by_name, bit_staircase(0.003, [warmup, *decays, end]))


@pytest.mark.parametrize("change", [{"lr_init": 1e-3}, {"lr_min": 1e-3}, {"decay_rate": 0.5}])
def test_bit_staircase_refuses_what_it_cannot_follow(change):
    with pytest.raises(UserError, match=next(iter(change))):
        get_lr("bit_staircase", lr_max=0.1, max_epoch=3, steps_per_epoch=2, **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mode": "exp"}, r"cosine, poly, steps, linear, bit_staircase and got 'exp'"),
        ({"warmup_epochs": 11}, r"warmup_epochs .* 10, not 11"),
        ({"warmup_epochs": -1}, "warmup_epochs"),
        ({"max_epoch": 0}, "max_epoch .* positive, not 0"),
        ({"max_epoch": -3}, "max_epoch .* positive"),
        ({"max_epoch": float("nan")}, "max_epoch .* positive"),
        ({"max_epoch": 0.1}, "less than one step"),
        ({"steps_per_epoch": 0}, "steps_per_epoch .* positive"),
        ({"lr_min": 0.2}, "lr_min"),
        ({"power": 0}, "power"),
        ({"decay_rate": 0}, "decay_rate"),
        ({"decay_rate": 1.5}, "decay_rate"),
    ],
)
def test_numbers_that_make_no_schedule_are_refused_in_one_line(change, words):
    arguments = {"mode": "cosine", "lr_max": 0.1, "max_epoch": 10, "steps_per_epoch": 1, **change}
    with pytest.raises(UserError, match=words) as caught:
        get_lr(arguments.pop("mode"), **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"max_epoch": 1e9}, "the run would have 7,000,000,000 steps"),
        ({"lr_init": 0.2}, "lr_init must not be above lr_max"),
        (
            {"mode": "steps", "decay_epochs": [1, 3]},
            r"decay_epochs must lie inside the run of 3, not \[1, 3\]",
        ),
        ({"mode": "steps", "decay_epochs": [0]}, "decay_epochs must lie inside"),
    ],
)
def test_numbers_that_would_change_nothing_or_too_much_are_refused(keys, text):
    arguments = {"mode": "cosine", "lr_max": 0.1, "max_epoch": 3, "steps_per_epoch": 7, **keys}
    with pytest.raises(UserError, match=text):
        get_lr(arguments.pop("mode"), **arguments)
