import json

import mindspore as ms
import numpy as np
import pytest
from support import GOLDEN, assert_golden, uniform_images
from vit_npz import golden_arrays

from src.checkpoint import load_pretrained
from src.encoder import DropPath, LayerNorm
from src.errors import UserError
from src.network import canonical_name, get_network, set_amp_level
from src.vit_map import VIT_ARCHITECTURES
from src.vit_operators import AttentionWeights, Gelu

CASES = json.loads((GOLDEN / "vit_logits.json").read_text())["cases"]


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Builds the network of a case, once, from an .npz file of its seeded weights."""
    built = {}

    def build_case(case):
        key = case["name"], case["num_classes"], case["size"]
        if key not in built:
            sizes = VIT_ARCHITECTURES[canonical_name(case["name"])]
            grid = case.get("pretrain_size", case["size"]) // sizes[0]
            pre_logits = case.get("pre_logits", False)
            path = tmp_path_factory.mktemp("npz") / "vit.npz"
            np.savez(path, **golden_arrays(*sizes, case["num_classes"], grid=grid, pre_logits=pre_logits))
            net = get_network(
                case["name"], num_classes=case["num_classes"], image_size=case["size"], pre_logits=pre_logits
            )
            record = load_pretrained(net, path)
            assert record["network"] == canonical_name(case["name"])
            path.unlink()
            built[key] = net.set_train(False)
        return built[key]

    return build_case


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case['name']}-{case['num_classes']}-{case['size']}"
)
def test_logits_equal_those_of_googles_code(build, case):
    images = uniform_images(case["n"], case["size"], case["size"], case["seed"])
    logits = build(case)(ms.Tensor(images)).asnumpy()
    assert_golden(logits, case)


@pytest.mark.parametrize("level", ["O1", "O2", "O3", "auto"])
def test_every_amp_level_keeps_the_logits_close(build, level, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MindSpore's O1 writes a folder where it stands
    case = CASES[0]
    full = build(case)
    net = get_network(case["name"], num_classes=case["num_classes"])
    ms.load_param_into_net(net, {p.name: p for p in full.get_parameters()})
    logits = set_amp_level(net, level).set_train(False)(ms.Tensor(uniform_images(2, 224, 224, 0)))
    assert logits.dtype == ms.float32
    difference = np.abs(logits.asnumpy() - np.array(case["logits_first"])).max()
    assert 1e-6 < difference < 2e-2  # float16 was used, and used well


def test_a_non_square_image_keeps_its_rows():
    net = get_network("vit_nano_patch8", num_classes=2, image_size=(16, 24))
    images = uniform_images(1, 16, 24, 0)
    tokens = net.patch_embed(ms.Tensor(images)).asnumpy()
    kernel, bias = net.patch_embed.proj.weight.asnumpy(), net.patch_embed.proj.bias.asnumpy()
    for token, (row, column) in enumerate(np.ndindex(2, 3)):
        patch = images[0, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        np.testing.assert_allclose(tokens[0, token], (kernel * patch).sum((1, 2, 3)) + bias, atol=1e-5)


@pytest.mark.parametrize("level", [None, ms.float16])
def test_attention_survives_scores_that_float16_cannot_hold(level):
    cell = AttentionWeights(4)
    if level is not None:
        cell.to_float(level)
    q = ms.Tensor(np.random.default_rng(0).normal(0, 400, (1, 2, 3, 4)), ms.float32)
    weights = cell(q, q).asnumpy().astype(np.float64)
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-3)


def test_layer_norm_adds_1e_minus_6_to_the_variance():
    x = np.random.default_rng(1).normal(0, 1e-3, (2, 3, 40)).astype(np.float32)
    centred = x.astype(np.float64) - x.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(LayerNorm(40, 1e-6)(ms.Tensor(x)).asnumpy(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("kind", "at_one"), [("tanh", 0.841192), ("exact", 0.841345)])
def test_gelu_is_the_one_that_was_asked_for(kind, at_one):
    np.testing.assert_allclose(Gelu(kind)(ms.Tensor([1.0])).asnumpy(), [at_one], rtol=0, atol=2e-6)


def test_drop_path_drops_whole_samples_and_keeps_the_mean():
    ms.set_seed(0)
    cell = DropPath(0.25).set_train()
    out = cell(ms.Tensor(np.ones((4000, 2, 3), np.float32))).asnumpy()
    per_sample = out.reshape(4000, -1)
    assert (per_sample == per_sample[:, :1]).all()
    np.testing.assert_allclose(np.unique(per_sample), [0, 4 / 3], rtol=1e-6)
    np.testing.assert_allclose((per_sample[:, 0] == 0).mean(), 0.25, atol=0.03)
    np.testing.assert_array_equal(
        cell.set_train(False)(ms.Tensor(np.ones((5, 2, 3), np.float32))).asnumpy(), 1
    )


def test_stochastic_depth_grows_linearly():
    net = get_network("vit_nano_patch8", num_classes=2, image_size=16, drop_path=0.3)
    rates = [0.0 if block.drop_path is None else block.drop_path.dropout.p for block in net.blocks]
    np.testing.assert_allclose(rates, [0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"image_size": 230}, "image_size 230 is not a multiple of patch_size 8; use 224 or 232"),
        ({"image_size": (16, 4)}, "use 8 or 16"),
        ({"pool": "max"}, "token or mean"),
        ({"gelu": "erf"}, "tanh or exact"),
        ({"heads": 5}, "multiple of the 5 heads"),
    ],
)
def test_arguments_that_make_no_vit_are_refused(wrong, text):
    with pytest.raises(UserError, match=text):
        get_network("vit_nano_patch8", **{"num_classes": 2, **wrong})
