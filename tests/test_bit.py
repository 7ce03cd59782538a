import json

import mindspore as ms
import numpy as np
import pytest
from bit_npz import golden_arrays
from mindspore import nn
from support import GOLDEN, assert_golden, uniform_images

from src.bit import BiT, GroupNormRelu, Root, StdConv2d
from src.bit_operators import Standardise
from src.checkpoint import load_pretrained
from src.network import set_amp_level

UNITS = {"tiny": (1, 1, 1, 1), "R50": (3, 4, 6, 3)}
CASES = json.loads((GOLDEN / "bit_logits.json").read_text())["cases"]


def case_id(case):
    return f"{case['name']}-{case['num_classes']}-{case['height']}x{case['width']}"


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Builds the network of a case, once, from an .npz file of its seeded weights."""
    built = {}

    def build_case(name, num_classes):
        if (name, num_classes) not in built:
            units, width = name.rsplit("-", 1)[1].rsplit("x", 1)
            path = tmp_path_factory.mktemp("npz") / f"{name}.npz"
            np.savez(path, **golden_arrays(UNITS[units], int(width), num_classes))
            net = BiT(units=UNITS[units], width=int(width), num_classes=num_classes)
            if width == "1":
                load_pretrained(net, path)
            else:  # not in the zoo, so the loader does not know it
                load_without_zoo(net, path)
            built[name, num_classes] = net.set_train(False)
        return built[name, num_classes]

    return build_case


def load_without_zoo(net, path):
    from src.npz_map import bit_params, infer_bit

    with np.load(path) as npz:
        for key, name, axes, _ in bit_params(infer_bit({k: npz[k].shape for k in npz.files})):
            value = npz[key] if axes is None else npz[key].transpose(axes)
            net.parameters_dict()[name].set_data(ms.Tensor(np.ascontiguousarray(value)))


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_logits_equal_those_of_googles_code(build, case):
    images = uniform_images(case["n"], case["height"], case["width"], case["seed"])
    logits = build(case["name"], case["num_classes"])(ms.Tensor(images)).asnumpy()
    assert_golden(logits, case)


@pytest.mark.parametrize("level", ["O1", "O2", "O3", "auto"])
def test_every_amp_level_keeps_the_logits_close(build, level, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MindSpore's O1 writes a folder where it stands
    case = CASES[0]
    full = build(case["name"], case["num_classes"])
    net = BiT(units=UNITS["tiny"], width=1, num_classes=case["num_classes"])
    ms.load_param_into_net(net, {p.name: p for p in full.get_parameters()})
    logits = set_amp_level(net, level).set_train(False)(ms.Tensor(uniform_images(2, 64, 64, 0)))
    assert logits.dtype == ms.float32
    difference = np.abs(logits.asnumpy() - np.array(case["logits_first"])).max()
    assert 1e-6 < difference < 1e-2  # float16 was used, and used well


def standardised(kernel):
    centred = kernel - kernel.mean((1, 2, 3), keepdims=True)
    return centred / np.sqrt((centred**2).mean((1, 2, 3), keepdims=True) + 1e-10)


@pytest.mark.parametrize("level", [None, ms.float16])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-5, 0.0])
def test_kernels_are_standardised_in_float32(spread, level):
    """A variance of 1e-10 shows the epsilon; float16 would flush it to zero. Constant kernels give zeros."""
    mean = 0.3 if spread in (1.0, 0.0) else 0.0  # float32 cannot hold a small spread around a large mean
    kernel = np.random.default_rng(0).normal(mean, spread, (5, 3, 3, 3)).astype(np.float32)
    conv = StdConv2d(3, 5, kernel_size=3)
    conv.weight.set_data(ms.Tensor(kernel))
    if level is not None:
        conv.to_float(level)
    impulse = np.zeros((3, 3, 3, 3), np.float32)
    impulse[range(3), range(3), 1, 1] = 1  # image i shows the weights of input channel i, mirrored
    out = conv(ms.Tensor(impulse)).asnumpy().astype(np.float64)
    weights = out.transpose(1, 0, 2, 3)[..., ::-1, ::-1]
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(
        weights, standardised(kernel.astype(np.float64)), rtol=0, atol=1e-5 if level is None else 3e-3
    )


def test_the_gradient_of_the_standardisation_is_that_of_its_formula():
    rng = np.random.default_rng(4)
    kernel, weight = rng.normal(0.2, 0.1, (2, 5)), rng.normal(size=(2, 5))

    def loss(k):
        return (weight * standardised(k.reshape(2, 5, 1, 1)).reshape(2, 5)).sum()

    expected = np.empty_like(kernel)
    for place in np.ndindex(kernel.shape):
        step = np.zeros_like(kernel)
        step[place] = 1e-6
        expected[place] = (loss(kernel + step) - loss(kernel - step)) / 2e-6
    cell = Standardise(5, 1e-10)
    grad = ms.ops.GradOperation(sens_param=True)(cell)
    found = grad(ms.Tensor(kernel, ms.float32), ms.Tensor(weight, ms.float32)).asnumpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(8, 10), (7, 9)])
def test_stride_two_pads_alike_on_both_sides(size):
    rng = np.random.default_rng(1)
    images, kernel = rng.normal(size=(2, 3, *size)), rng.normal(size=(4, 3, 3, 3))
    conv = StdConv2d(3, 4, kernel_size=3, stride=2)
    conv.weight.set_data(ms.Tensor(kernel.astype(np.float32)))
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    expected = np.einsum("nchwij,dcij->ndhw", windows, standardised(kernel))
    np.testing.assert_allclose(
        conv(ms.Tensor(images.astype(np.float32))).asnumpy(), expected, rtol=0, atol=1e-4
    )


def test_the_root_pool_is_padded_with_zeros():
    root = Root(out_channels=32)
    root.conv = nn.Identity()
    out = root(ms.Tensor(-np.arange(1, 65, dtype=np.float32).reshape(1, 1, 8, 8))).asnumpy()
    assert out.shape == (1, 1, 4, 4)
    np.testing.assert_array_equal(out[0, 0, 0], 0)
    np.testing.assert_array_equal(out[0, 0, :, 0], 0)
    np.testing.assert_array_equal(out[0, 0, 1:, 1:], -np.arange(1, 65).reshape(8, 8)[1::2, 1::2][:3, :3])


@pytest.mark.parametrize("level", [None, ms.float16])
def test_group_norm_is_right_far_from_zero(level):
    check_group_norm(np.random.default_rng(2).normal(100, 0.5, (2, 64, 5, 3)), level, atol=1e-3)


def test_group_norm_adds_1e_minus_5_to_the_variance():
    check_group_norm(np.random.default_rng(3).normal(0, 3e-3, (2, 64, 5, 3)), None, atol=1e-5)


def check_group_norm(x, level, *, atol):
    x = x.astype(np.float32)
    norm = GroupNormRelu(64)
    norm.gamma.set_data(ms.Tensor(np.linspace(0.5, 2, 64), ms.float32))
    norm.beta.set_data(ms.Tensor(np.linspace(-1, 1, 64), ms.float32))
    if level is not None:
        norm.to_float(level)
    groups = x.astype(np.float64).reshape(2, 32, -1)
    groups = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    expected = groups.reshape(x.shape) * np.linspace(0.5, 2, 64)[:, None, None]
    expected += np.linspace(-1, 1, 64)[:, None, None]
    expected = np.maximum(expected, 0)
    if level is not None:
        expected = expected.astype(np.float16)  # rounded once, at the end
    np.testing.assert_allclose(norm(ms.Tensor(x)).asnumpy(), expected, rtol=1e-3 if level else 0, atol=atol)


def test_channels_that_make_no_groups_are_refused():
    with pytest.raises(ValueError, match="multiple of 32"):
        GroupNormRelu(48)
