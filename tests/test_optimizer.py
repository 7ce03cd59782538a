import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from src.errors import UserError
from src.optimizer import get_optimizer


def parameters():
    return [
        Parameter(Tensor(np.linspace(-1, 1, 6).reshape(2, 3), ms.float32), name="kernel"),
        Parameter(Tensor([0.5, -0.25, 2.0], ms.float32), name="bias"),
    ]


def test_momentum_equals_numpy_step_by_step():
    rng = np.random.default_rng(0)
    lr = np.array([0.0, 0.1, 0.2, 0.05], np.float32)
    params = parameters()
    optimizer = get_optimizer("momentum", params, lr, momentum=0.9, weight_decay=0.0)
    expected = [p.asnumpy().astype(np.float64) for p in params]
    velocity = [np.zeros_like(w) for w in expected]
    for rate in lr:
        grads = [rng.normal(size=w.shape).astype(np.float32) for w in expected]
        optimizer(tuple(Tensor(g) for g in grads))
        for w, v, g in zip(expected, velocity, grads):
            v[...] = 0.9 * v + g
            w -= rate * v
    for param, w in zip(params, expected):
        np.testing.assert_allclose(param.asnumpy(), w, rtol=0, atol=1e-6)


def test_weight_decay_leaves_vectors_alone():
    params = parameters()
    optimizer = get_optimizer("momentum", params, np.array([0.5], np.float32), momentum=0.9, weight_decay=0.1)
    before = {p.name: p.asnumpy().copy() for p in params}
    optimizer(tuple(Tensor(np.zeros(p.shape, np.float32)) for p in optimizer.parameters))
    after = {p.name: p.asnumpy() for p in params}
    np.testing.assert_allclose(after["kernel"], before["kernel"] * (1 - 0.5 * 0.1), rtol=1e-6)
    np.testing.assert_array_equal(after["bias"], before["bias"])


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(UserError, match="momentum"):
        get_optimizer("adamax", parameters(), np.ones(1, np.float32), momentum=0.9, weight_decay=0.0)
