import numpy as np
import pytest
from scipy import ndimage
from vit_npz import big_vision, golden_arrays

from src.errors import UserError
from src.vit_map import VIT_ARCHITECTURES, is_vit, map_vit, resize_position

NANO = VIT_ARCHITECTURES["vit_nano_patch8"]


def nano(**options):
    return golden_arrays(*NANO, 5, grid=3, **options)


def shapes(arrays):
    return {key: value.shape for key, value in arrays.items()}


def parameters(arrays):
    """Our name -> value, by the map."""
    architecture, mapped = map_vit(shapes(arrays))
    values = {param.name: param.turn(arrays[param.key]) for param in mapped}
    assert {param.name: param.shape for param in mapped} == {name: v.shape for name, v in values.items()}
    return architecture, values


def test_the_architecture_is_read_from_the_shapes():
    architecture, _ = map_vit(shapes(nano(pre_logits=True)))
    assert architecture.name == "vit_nano_patch8"
    assert (architecture.class_num, architecture.grid, architecture.pool) == (5, 3, "token")
    assert architecture.record == {
        "eval_image_size": [24, 24],
        "grid": [3, 3],
        "pool": "token",
        "pre_logits": True,
    }


def test_kernels_are_turned_and_not_reshaped():
    arrays = nano()
    values = parameters(arrays)[1]
    block = "Transformer/encoderblock_2"
    query = arrays[f"{block}/MultiHeadDotProductAttention_1/query/kernel"]  # (D, heads, head width)
    out = arrays[f"{block}/MultiHeadDotProductAttention_1/out/kernel"]  # (heads, head width, D)
    assert values["blocks.2.attn.q.weight"][16 * 3 + 5, 7] == query[7, 3, 5]
    assert values["blocks.2.attn.proj.weight"][7, 16 * 3 + 5] == out[3, 5, 7]
    assert values["blocks.2.mlp.fc1.weight"][100, 7] == arrays[f"{block}/MlpBlock_3/Dense_0/kernel"][7, 100]
    assert values["patch_embed.proj.weight"][9, 2, 1, 6] == arrays["embedding/kernel"][1, 6, 2, 9]


@pytest.mark.parametrize("prefix", ["", "opt/target/", "params/", "params/img/"])
@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("token", [True, False])
def test_every_generation_of_names_gives_the_same_network(prefix, scanned, token):
    arrays = nano(token=token)
    expected = parameters(arrays)[1]
    architecture, found = parameters(big_vision(arrays, prefix, scanned=scanned))
    assert architecture.pool == ("token" if token else "mean")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name == "pos_embed" and token:  # big_vision adds the class token after the position embedding
            assert not found[name][:, 0].any()
            np.testing.assert_array_equal(found[name][:, 1:], value[:, 1:])
        else:
            np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (
            "Transformer/encoderblock_1/LayerNorm_2/scale",
            "missing 1: Transformer/encoderblock_1/LayerNorm_2/scale",
        ),
        ("head/kernel", "head/kernel"),
        ("Transformer/posembed_input/pos_embedding", "pos_embedding"),
    ],
)
def test_an_array_that_is_missing_is_named(key, text):
    broken = shapes(nano())
    del broken[key]
    with pytest.raises(UserError, match=text):
        map_vit(broken)


def test_an_array_too_many_or_of_another_shape_is_named():
    with pytest.raises(UserError, match="unexpected 1: MAPHead_0/probe"):
        map_vit({**shapes(nano()), "MAPHead_0/probe": (1, 1, 64)})
    with pytest.raises(UserError, match="wrong shape 1: Transformer/encoder_norm/bias"):
        map_vit({**shapes(nano()), "Transformer/encoder_norm/bias": (65,)})


def test_a_vit_is_told_from_other_files():
    assert is_vit(shapes(nano()))
    assert not is_vit({"resnet/root_block/standardized_conv2d/kernel": (7, 7, 3, 64)})


@pytest.mark.parametrize(
    ("grid", "new"),
    [
        *[((14, 14), (24, 24)), ((14, 14), (14, 28)), ((14, 14), (7, 28)), ((14, 14), (4, 4))],
        *[((3, 5), (1, 2)), ((1, 1), (3, 2))],
    ],
)
def test_positions_are_resized_like_scipys_zoom(grid, new):
    position = np.random.default_rng(0).normal(size=(1, 1 + grid[0] * grid[1], 6)).astype(np.float32)
    resized = resize_position(position, grid, new)
    np.testing.assert_array_equal(resized[:, 0], position[:, 0])
    factors = (new[0] / grid[0], new[1] / grid[1], 1)
    expected = ndimage.zoom(position[0, 1:].reshape(*grid, 6).astype(np.float64), factors, order=1)
    if 1 in grid:
        expected = np.broadcast_to(position[0, 1:], (*new, 6))
    np.testing.assert_allclose(resized[0, 1:].reshape(*new, 6), expected, rtol=0, atol=1e-6)


def test_rows_and_columns_are_not_swapped():
    rows = np.repeat(np.arange(3.0), 2).reshape(1, 6, 1).astype(np.float32)  # the value is the row
    resized = resize_position(rows, (3, 2), (5, 4)).reshape(5, 4)
    np.testing.assert_allclose(resized, np.repeat(np.linspace(0, 2, 5), 4).reshape(5, 4), atol=1e-6)


def test_the_same_grid_is_a_no_op():
    position = np.random.default_rng(1).normal(size=(1, 10, 4)).astype(np.float32)
    assert resize_position(position, (3, 3), (3, 3)) is position
