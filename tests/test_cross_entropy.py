import mindspore as ms
import numpy as np
import pytest

from src.cross_entropy import CrossEntropy


def reference(logits, target):
    shifted = logits - logits.max(1, keepdims=True)
    return -(target * (shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))).sum(1).mean()


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_class_numbers_and_soft_labels_equal_numpy(classes):
    rng = np.random.default_rng(classes)
    logits, labels = rng.normal(0, 30, (5, classes)), rng.integers(0, classes, 5)
    soft = 0.3 * np.eye(classes)[labels] + 0.7 * np.eye(classes)[labels[::-1]]
    loss = CrossEntropy()
    hard_loss = loss(ms.Tensor(logits, ms.float32), ms.Tensor(labels, ms.int32)).asnumpy()
    soft_loss = loss(ms.Tensor(logits, ms.float32), ms.Tensor(soft, ms.float32)).asnumpy()
    np.testing.assert_allclose(hard_loss, reference(logits, np.eye(classes)[labels]), rtol=1e-5)
    np.testing.assert_allclose(soft_loss, reference(logits, soft), rtol=1e-5)


def test_half_precision_logits_are_not_summed_in_half_precision():
    logits = np.full((1, 70_000), 0.5, np.float16)
    loss = CrossEntropy()(ms.Tensor(logits), ms.Tensor([3], ms.int32))
    assert loss.dtype == ms.float32
    np.testing.assert_allclose(loss.asnumpy(), np.log(70_000), rtol=1e-5)
