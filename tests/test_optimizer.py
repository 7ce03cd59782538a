import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from src.checkpoint import STATE_PREFIXES
from src.errors import UserError
from src.network import get_network
from src.optimizer import OPTIMIZERS, get_optimizer
from src.param_rules import layer_scales

SHAPES = {"kernel": (2, 3), "bias": (3,), "filter": (5, 2, 3, 1), "cls_token": (1, 1, 7)}


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


def parameters(shapes=SHAPES):
    rng = np.random.default_rng(7)
    return [Parameter(Tensor(rng.normal(size=s), ms.float32), name=name) for name, s in shapes.items()]


def gradients(params, seed):
    """Of very different sizes from element to element."""
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=p.shape) * 10.0 ** rng.integers(-6, 2, p.shape)).astype(np.float32) for p in params
    ]


def centred(grad):
    """Of kernels: neither vectors nor the class token."""
    kernel = grad.ndim > 1 and grad.shape != SHAPES["cls_token"]
    return grad - grad.mean(axis=tuple(range(1, grad.ndim)), keepdims=True) if kernel else grad


def values(params):
    return [p.asnumpy().astype(np.float64) for p in params]


def adamw(weights, grads_of_step, rates, *, start=0, decays=0.0, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """AdamW in float64 on a list of arrays; `rates` holds one rate a step, or one a step and array."""
    m, v = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    decays = np.broadcast_to(decays, len(weights))
    for t, (grads, rate) in enumerate(zip(grads_of_step, rates), start + 1):
        for i, (g, lr) in enumerate(zip(grads, np.broadcast_to(rate, len(weights)))):
            g = g.astype(np.float64)
            m[i] = beta1 * m[i] + (1 - beta1) * g
            v[i] = beta2 * v[i] + (1 - beta2) * g * g
            weights[i] = weights[i] * (1 - lr * decays[i])
            mean, root = m[i] / (1 - beta1**t), np.sqrt(v[i] / (1 - beta2**t))
            weights[i] = weights[i] - lr * mean / (root + epsilon)
    return weights


def momentum(weights, grads_of_step, rates, *, decays=0.0, change=lambda grad: grad):
    """SGD with momentum 0.9 in float64, arguments as for `adamw`."""
    velocity = [np.zeros_like(w) for w in weights]
    for grads, rate in zip(grads_of_step, rates):
        for i, (g, lr, decay) in enumerate(
            zip(grads, np.broadcast_to(rate, len(weights)), np.broadcast_to(decays, len(weights)))
        ):
            velocity[i] = 0.9 * velocity[i] + change(g + decay * weights[i])
            weights[i] = weights[i] - lr * velocity[i]
    return weights


REFERENCES = {"adamw": adamw, "momentum": momentum}


def run(optimizer, grads_of_step):
    for grads in grads_of_step:
        optimizer(tuple(Tensor(g) for g in grads))


def assert_reached(params, weights):
    for param, w in zip(params, weights):
        np.testing.assert_allclose(param.asnumpy(), w, rtol=1e-6, atol=1e-6)


def test_momentum_equals_numpy_with_two_groups_and_a_moving_rate():
    lr = np.array([0.0, 0.1, 0.2, 0.05], np.float32)
    params = parameters()
    grads = [gradients(params, step) for step in range(len(lr))]
    expected = momentum(values(params), grads, lr, decays=[0.3, 0, 0.3, 0])
    run(get_optimizer("momentum", params, lr, momentum=0.9, weight_decay=0.3), grads)
    assert_reached(params, expected)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize(
    "options", [{}, {"beta1": 0.5, "beta2": 0.99999, "epsilon": 1e-3}, {"beta1": 0.0}], ids=str
)
def test_adamw_equals_numpy_with_two_groups_and_a_moving_rate(options, mode):
    ms.set_context(mode=mode)
    lr = np.array([0.0, 1e-2, 3e-2, 0.0, 2e-2, 1e-3, 5e-3, 1e-2], np.float32)
    params = parameters()
    optimizer = get_optimizer("adamw", params, lr, weight_decay=0.3, **options)
    grads = [gradients(params, step) for step in range(len(lr))]
    expected = adamw(values(params), grads, lr, decays=[0.3, 0, 0.3, 0], **options)
    run(optimizer, grads)
    ms.set_context(mode=ms.GRAPH_MODE)
    assert_reached(params, expected)
    assert optimizer.global_step.asnumpy() == len(lr)


@pytest.mark.parametrize("beta2", [0.999, 0.99999])
def test_adamw_stays_right_after_a_hundred_thousand_steps(beta2):
    """From a state of zeros, so that the update shows the bias correction: 1 - 0.99999 ** 100001 is 0.63."""
    start, steps = 100_000, 4
    lr = np.full(start + steps, 0.1, np.float32)
    params = parameters()
    optimizer = get_optimizer("adamw", params, lr, weight_decay=0.1, beta2=beta2)
    optimizer.global_step.set_data(Tensor([start], ms.int32))
    grads = [gradients(params, step) for step in range(steps)]
    betas = {"beta1": float(np.float32(0.9)), "beta2": float(np.float32(beta2))}  # as the kernel has them
    expected = adamw(values(params), grads, lr[start:], start=start, decays=[0.1, 0, 0.1, 0], **betas)
    before = values(params)
    run(optimizer, grads)
    for param, w, old in zip(params, expected, before):
        np.testing.assert_allclose(param.asnumpy() - old, w - old, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("centralization", [False, True])
def test_adamw_takes_half_precision_gradients_in_full(centralization):
    lr, after = np.full(2, 0.1, np.float32), []
    grads = [[g.astype(np.float16) for g in gradients(parameters(), step)] for step in range(2)]
    for dtype in (np.float16, np.float32):
        params = parameters()
        optimizer = get_optimizer("adamw", params, lr, gradient_centralization=centralization)
        run(optimizer, [[g.astype(dtype) for g in step] for step in grads])
        after.append(values(params))
    for half, full in zip(*after):
        np.testing.assert_array_equal(half, full)


def test_zero_gradients_leave_decay_alone_and_that_on_vits_kernels_only():
    lr, decay = np.array([0.5], np.float32), 0.1
    params = list(
        get_network("vit_nano_patch8", num_classes=3, image_size=16, pre_logits=True).get_parameters()
    )
    for seed, param in enumerate(params):
        param.set_data(Tensor(np.random.default_rng(seed).normal(size=param.shape), ms.float32))
    before = {p.name: p.asnumpy().copy() for p in params}
    optimizer = get_optimizer("adamw", params, lr, weight_decay=decay)
    run(optimizer, [[np.zeros(p.shape, np.float32) for p in params]])
    for param in params:
        if param.ndim == 1 or param.name in ("cls_token", "pos_embed"):
            np.testing.assert_array_equal(param.asnumpy(), before[param.name])
        else:
            np.testing.assert_allclose(param.asnumpy(), before[param.name] * (1 - 0.5 * decay), rtol=3e-7)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weight_decay_heeds_the_filter(name):
    params = parameters()
    optimizer = get_optimizer(
        name, params, np.array([0.5], np.float32), weight_decay=0.1, no_weight_decay=["filt"]
    )
    before = {p.name: p.asnumpy().copy() for p in params}
    run(optimizer, [[np.zeros(p.shape, np.float32) for p in params]])
    after = {p.name: p.asnumpy() for p in params}
    np.testing.assert_allclose(after["kernel"], before["kernel"] * (1 - 0.5 * 0.1), rtol=1e-6)
    for spared in ("bias", "filter", "cls_token"):
        np.testing.assert_array_equal(after[spared], before[spared])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_layer_moves_at_its_own_rate(name):
    names = ["patch_embed.proj.weight", "blocks.0.norm1.gamma", "blocks.1.attn.q.weight", "head.weight"]
    params = parameters(dict(zip(names, SHAPES.values())))
    scales = layer_scales(names, 0.5)
    assert list(scales.values()) == [1 / 8, 1 / 4, 1 / 2, 1]
    lr = np.array([1e-2, 3e-2, 0.0, 2e-2], np.float32)
    rates = lr[:, None] * np.array([1 / 8, 1 / 4, 1 / 2, 1])
    optimizer = get_optimizer(name, params, lr, weight_decay=0.3, lr_scales=scales)
    grads = [gradients(params, step) for step in range(4)]
    expected = REFERENCES[name](values(params), grads, rates, decays=[0.3, 0, 0.3, 0.3])
    run(optimizer, grads)
    assert_reached(params, expected)


def test_centralization_takes_the_mean_off_kernels_alone():
    lr = np.array([1e-2, 3e-2, 2e-2], np.float32)
    params, decays = parameters(), [0.3, 0, 0.3, 0]
    grads = [gradients(params, step) for step in range(3)]
    expected = adamw(values(params), [[centred(g) for g in step] for step in grads], lr, decays=decays)
    run(get_optimizer("adamw", params, lr, weight_decay=0.3, gradient_centralization=True), grads)
    for param, w in zip(params, expected):  # a mean of zero is one of rounding, and Adam divides by it
        np.testing.assert_allclose(param.asnumpy(), w, rtol=1e-6, atol=1e-5)


def test_centralization_of_momentum_takes_the_penalty_in():
    lr = np.array([1e-2, 3e-2, 2e-2], np.float32)
    params, decays = parameters(), [0.3, 0, 0.3, 0]
    grads = [gradients(params, step) for step in range(3)]
    expected = momentum(values(params), grads, lr, decays=decays, change=centred)
    run(get_optimizer("momentum", params, lr, weight_decay=0.3, gradient_centralization=True), grads)
    assert_reached(params, expected)


def test_as_many_parameters_as_the_largest_network_has_compile():
    names = [f"blocks.{i}.weight" for i in range(470)]
    params = parameters(dict.fromkeys(names, (2, 3)))
    before = values(params)
    scales = layer_scales(names, 0.99)
    run(
        get_optimizer("adamw", params, np.full(2, 0.1, np.float32), lr_scales=scales),
        [[np.ones((2, 3), np.float32)] * 470],
    )
    np.testing.assert_allclose(params[-1].asnumpy(), before[-1] - 0.1 * 0.99, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scales", [None, {"kernel": 0.5, "bias": 1.0, "filter": 1.0, "cls_token": 0.25}])
def test_parameters_keep_their_order_and_the_state_its_names(scales):
    params = parameters()
    optimizer = get_optimizer("adamw", params, np.ones(2, np.float32), weight_decay=0.1, lr_scales=scales)
    assert [p.name for p in optimizer.parameters] == list(SHAPES)
    state = {p.name for p in optimizer.get_parameters()} - set(SHAPES)
    assert {f"adam_{moment}.{name}" for moment in "mv" for name in SHAPES} <= state
    for name in state:
        assert name.startswith(STATE_PREFIXES) or name in ("global_step", "learning_rate")


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(UserError, match="momentum, adamw and got 'adamax'"):
        get_optimizer("adamax", parameters(), np.ones(1, np.float32))


@pytest.mark.parametrize("beta", [1.0, 1 - 1e-9, -0.1])
def test_a_beta_that_forgets_nothing_is_refused(beta):
    with pytest.raises(UserError, match="beta2 wants a number from 0 to below 1"):
        get_optimizer("adamw", parameters(), np.ones(1, np.float32), beta2=beta)
