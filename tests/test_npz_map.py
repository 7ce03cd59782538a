import numpy as np
import pytest
from bit_npz import CONV, bit_arrays

from src.errors import UserError
from src.npz_map import BIT_ARCHITECTURES, BitArchitecture, bit_params, infer_bit, map_bit

TINY = BitArchitecture((1, 1, 1, 1), 1, 7)


@pytest.fixture(scope="module")
def shapes():
    return {key: array.shape for key, array in bit_arrays().items()}


def without(shapes, *keys):
    return {key: shape for key, shape in shapes.items() if key not in keys}


@pytest.mark.parametrize(
    ("name", "class_num", "parameters"),
    [
        # timm's counts of resnetv2_50x1_bit, 101x1 and 50x3 with 1000 classes
        ("bit_r50x1", 1000, 25_549_352),
        ("bit_r101x1", 1000, 44_541_480),
        ("bit_r50x3", 1000, 217_319_080),
        ("bit_r152x4", 1000, 936_533_224),
        ("bit_r50x1", 21843, 68_256_659),
    ],
)
def test_the_parameters_of_a_network_add_up_to_the_published_count(name, class_num, parameters):
    params = bit_params(BitArchitecture(*BIT_ARCHITECTURES[name], class_num))
    assert sum(int(np.prod(shape)) for _, _, _, shape in params) == parameters


@pytest.mark.parametrize(("units", "width", "class_num"), [((1, 2, 1, 3), 1, 10), ((1, 1, 1, 1), 2, 5)])
def test_the_architecture_is_told_from_the_shapes(units, width, class_num):
    shapes = {key: array.shape for key, array in bit_arrays(units, width, class_num).items()}
    assert infer_bit(shapes) == BitArchitecture(units, width, class_num)


@pytest.mark.parametrize("name", BIT_ARCHITECTURES)
def test_every_network_of_the_zoo_has_its_name(name):
    assert BitArchitecture(*BIT_ARCHITECTURES[name], 10).name == name


def test_an_architecture_outside_the_zoo_lists_the_zoo():
    with pytest.raises(UserError, match=r"\(1, 2, 1, 3\) units and width 1 .*bit_r50x1"):
        _ = BitArchitecture((1, 2, 1, 3), 1, 10).name


def test_every_array_gets_one_parameter_of_its_size(shapes):
    architecture, params = map_bit(shapes)
    assert architecture == TINY
    assert sorted(key for key, *_ in params) == sorted(shapes)
    assert len({name for _, name, _, _ in params}) == len(params)
    for key, _, axes, shape in params:
        moved = shapes[key] if axes is None else tuple(shapes[key][axis] for axis in axes)
        assert moved == shape


@pytest.mark.parametrize(
    ("key", "name", "shape"),
    [
        (f"root_block/{CONV}", "root.conv.weight", (64, 3, 7, 7)),
        (f"block2/unit01/a/{CONV}", "body.block2.unit01.conv1.weight", (128, 256, 1, 1)),
        (f"block1/unit01/b/{CONV}", "body.block1.unit01.conv2.weight", (64, 64, 3, 3)),
        (f"block1/unit01/c/{CONV}", "body.block1.unit01.conv3.weight", (256, 64, 1, 1)),
        (f"block1/unit01/a/proj/{CONV}", "body.block1.unit01.downsample.weight", (256, 64, 1, 1)),
        ("block2/unit01/a/group_norm/gamma", "body.block2.unit01.gn1.gamma", (256,)),
        ("block2/unit01/c/group_norm/beta", "body.block2.unit01.gn3.beta", (128,)),
        ("group_norm/beta", "head.gn.beta", (2048,)),
        ("head/conv2d/kernel", "head.conv.weight", (7, 2048, 1, 1)),
        ("head/conv2d/bias", "head.conv.bias", (7,)),
    ],
)
def test_keys_have_the_names_of_the_port(shapes, key, name, shape):
    found = {entry[0]: (entry[1], entry[3]) for entry in map_bit(shapes)[1]}
    assert found[f"resnet/{key}"] == (name, shape)


def test_a_numbered_convolution_is_the_same_convolution(shapes):
    plain = "resnet/block1/unit01/a/proj/standardized_conv2d/kernel"
    numbered = plain.replace("conv2d", "conv2d_1")
    renamed = {numbered if key == plain else key: shape for key, shape in shapes.items()}
    names = {key: name for key, name, _, _ in map_bit(renamed)[1]}
    assert names[numbered] == "body.block1.unit01.downsample.weight"


def test_a_convolution_that_stands_there_twice_is_refused(shapes):
    twice = {**shapes, "resnet/root_block/standardized_conv2d_1/kernel": (7, 7, 3, 64)}
    with pytest.raises(UserError, match="unexpected 1: resnet/root_block/standardized_conv2d_1/kernel"):
        map_bit(twice)


def test_missing_unexpected_and_misshapen_arrays_are_all_listed(shapes):
    gamma, beta = "resnet/block2/unit01/b/group_norm/gamma", "resnet/group_norm/beta"
    broken = {**without(shapes, gamma), "resnet/step": (), beta: (2047,)}
    with pytest.raises(UserError) as caught:
        map_bit(broken)
    text = str(caught.value)
    assert f"missing 1: {gamma}" in text
    assert "unexpected 1: resnet/step" in text
    assert f"wrong shape 1: {beta} (2047,) instead of (2048,)" in text
    assert "\n" not in text


def test_a_long_list_is_cut_and_counted(shapes):
    block = [key for key in shapes if "block3/" in key]
    with pytest.raises(UserError, match=r"missing 10: (?:[^,]+, ){5}\.\.\."):
        map_bit(without(shapes, *block))


@pytest.mark.parametrize(
    ("keys", "family"),
    [
        ({"Transformer/encoder_norm/scale": (768,), "cls": (1, 1, 768)}, "Vision Transformer"),
        ({"root_block/conv_root/kernel": (7, 7, 3, 64)}, "big_vision"),
        ({"resnet/group_norm/beta": (2048,)}, "lacks arrays.*root_block/standardized_conv2d/kernel"),
        ({"weight": (3, 2)}, "1 arrays such as 'weight'"),
    ],
)
def test_another_file_is_called_by_its_family(keys, family):
    with pytest.raises(UserError, match=family):
        map_bit(keys)


@pytest.mark.parametrize("shape", [(7, 7, 3, 65), (7, 7, 3, 0), (64,)])
def test_a_root_kernel_that_is_none_is_refused(shapes, shape):
    with pytest.raises(UserError, match="root_block"):
        map_bit({**shapes, "resnet/root_block/standardized_conv2d/kernel": shape})
