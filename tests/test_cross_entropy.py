import mindspore as ms
import numpy as np
import pytest

from src.cross_entropy import LOSSES, CrossEntropy, get_loss, smooth_targets
from src.errors import UserError


@pytest.fixture(scope="module", autouse=True)
def pynative_mode():
    before = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=before)


def softmax(logits):
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def reference(logits, target):
    shifted = logits - logits.max(1, keepdims=True)
    return -(target * (shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))).sum(1).mean()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_class_numbers_and_soft_labels_equal_numpy(classes, smoothing):
    rng = np.random.default_rng(classes)
    logits, labels = rng.normal(0, 30, (5, classes)), rng.integers(0, classes, 5)
    one_hot = np.eye(classes)[labels]
    soft = 0.3 * one_hot + 0.7 * one_hot[::-1]
    loss = CrossEntropy(smoothing)
    hard_loss = loss(ms.Tensor(logits, ms.float32), ms.Tensor(labels, ms.int32)).asnumpy()
    soft_loss = loss(ms.Tensor(logits, ms.float32), ms.Tensor(soft, ms.float32)).asnumpy()
    for found, target in ((hard_loss, one_hot), (soft_loss, soft)):
        smooth = (1 - smoothing) * target + smoothing / classes
        np.testing.assert_allclose(found, reference(logits, smooth), rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_is_probability_minus_target(smoothing):
    rng = np.random.default_rng(0)
    logits, soft = (
        rng.normal(0, 3, (5, 7)),
        0.3 * np.eye(7)[[0, 1, 2, 3, 4]] + 0.7 * np.eye(7)[[0, 6, 5, 3, 1]],
    )
    grad = ms.grad(CrossEntropy(smoothing))(ms.Tensor(logits, ms.float32), ms.Tensor(soft, ms.float32))
    expected = (softmax(logits) - (1 - smoothing) * soft - smoothing / 7) / 5
    np.testing.assert_allclose(grad.asnumpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_graph_mode_gives_the_loss_and_gradient_of_numpy(smoothing):
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(0, 3, (3, 5)), np.array([4, 0, 2])
    target = (1 - smoothing) * np.eye(5)[labels] + smoothing / 5
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        loss = ms.value_and_grad(CrossEntropy(smoothing))
        value, grad = loss(ms.Tensor(logits, ms.float32), ms.Tensor(labels, ms.int32))
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    np.testing.assert_allclose(value.asnumpy(), reference(logits, target), rtol=1e-5)
    np.testing.assert_allclose(grad.asnumpy(), (softmax(logits) - target) / 3, rtol=0, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
def test_targets_of_mixed_labels_sum_to_one(classes, smoothing):
    pairs = np.array([(0, 1), (1, 1), (classes - 1, 0), (classes - 1, classes - 1)])
    first, second = np.eye(classes, dtype=np.float32)[pairs.T]
    for lam in (0.0, 0.3, 1.0):
        mixed = ms.Tensor((lam * first + (1 - lam) * second).astype(np.float32))
        target = smooth_targets(mixed, classes, smoothing).asnumpy()
        assert (target >= 0).all()
        np.testing.assert_allclose(target.sum(1, dtype=np.float64), 1, rtol=0, atol=1e-6)


def test_mixing_smoothed_labels_is_smoothing_mixed_labels():
    labels = [ms.Tensor(numbers, ms.int32) for numbers in ([0, 2], [1, 2])]
    first, second = (smooth_targets(numbers, 3, 0.1).asnumpy() for numbers in labels)
    np.testing.assert_allclose(
        first, [[0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3], [0.1 / 3, 0.1 / 3, 0.9 + 0.1 / 3]], rtol=1e-6
    )
    mixed = ms.Tensor([[0.3, 0.7, 0], [0, 0, 1]], ms.float32)
    np.testing.assert_allclose(smooth_targets(mixed, 3, 0.1).asnumpy(), 0.3 * first + 0.7 * second, rtol=1e-6)


def test_one_class_has_the_loss_zero():
    loss = CrossEntropy(0.1)(ms.Tensor([[3.0], [-2.0]], ms.float32), ms.Tensor([0, 0], ms.int32))
    assert loss.asnumpy() == 0


def test_half_precision_logits_are_not_summed_in_half_precision():
    logits = np.full((1, 70_000), 0.5, np.float16)
    loss = CrossEntropy()(ms.Tensor(logits), ms.Tensor([3], ms.int32))
    assert loss.dtype == ms.float32
    np.testing.assert_allclose(loss.asnumpy(), np.log(70_000), rtol=1e-5)


@pytest.mark.parametrize(("name", "factor"), [("ce", 0), ("ce_smooth", 0.1), ("ce_smooth_mixup", 0.2)])
def test_a_name_and_a_factor_give_a_loss(name, factor):
    loss = get_loss(name, smooth_factor=factor)(ms.Tensor([[2.0, 0.0]]), ms.Tensor([0], ms.int32))
    np.testing.assert_allclose(loss.asnumpy(), np.log1p(np.exp(-2)) + factor, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "factor", "words"),
    [
        ("focal", 0.0, r"ce, ce_smooth, ce_smooth_mixup and got 'focal'"),
        ("ce", 0.1, "does not smooth"),
        *[
            (name, factor, "at least 0 and below 1")
            for name in LOSSES
            for factor in (1.0, -0.1, float("nan"))
        ],
    ],
)
def test_unknown_names_and_factors_that_do_not_suit_are_refused(name, factor, words):
    with pytest.raises(UserError, match=words):
        get_loss(name, smooth_factor=factor)
