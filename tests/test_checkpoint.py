import logging

import mindspore as ms
import numpy as np
import pytest
from bit_npz import CONV, bit_arrays, flip_byte
from mindspore import nn
from vit_npz import golden_arrays

from src.array_io import Weight
from src.checkpoint import STATE_NAMES, STATE_PREFIXES, load_pretrained, read_record, save_parameters
from src.convert import convert
from src.errors import UserError
from src.network import describe, get_network
from src.vit_map import VIT_ARCHITECTURES, resize_position
from src.weight_file import open_weights, write_weights

CLASSES = 7
ROOT = f"resnet/root_block/{CONV}"


@pytest.fixture(scope="module")
def arrays():
    return bit_arrays(class_num=CLASSES)


@pytest.fixture(scope="module")
def npz(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("google") / "BiT-M-tiny.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture(scope="module")
def net():
    return get_network("bit_tiny", num_classes=CLASSES)


@pytest.fixture
def values(net):
    """The network filled with a number that no file holds, to see what was touched."""
    for param in net.get_parameters():
        param.set_data(ms.Tensor(np.full(param.shape, 9, np.float32)))
    return {param.name: param for param in net.get_parameters()}


def assert_untouched(values):
    assert all((param.asnumpy() == 9).all() for param in values.values())


def changed(arrays, path, *, without=(), **extra):
    np.savez(path, **{k: a for k, a in arrays.items() if k not in without}, **extra)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".ckpt", ".safetensors"])
def test_all_kinds_of_files_fill_the_network_alike(net, values, npz, arrays, tmp_path, suffix):
    path = npz
    if suffix != ".npz":
        path = tmp_path / f"x{suffix}"
        convert(npz, path)
    record = load_pretrained(net, path)
    assert (record["network"], record["class_num"]) == ("bit_tiny", CLASSES)
    for key, name in (
        (ROOT, "root.conv.weight"),
        (f"resnet/block1/unit01/a/{CONV}", "body.block1.unit01.conv1.weight"),  # 64 -> 64: no shape tells
        (f"resnet/block2/unit01/b/{CONV}", "body.block2.unit01.conv2.weight"),
        ("resnet/head/conv2d/kernel", "head.conv.weight"),
    ):
        np.testing.assert_array_equal(values[name].asnumpy(), np.einsum("hwio->oihw", arrays[key]))
    for key, name in (
        ("resnet/block3/unit01/b/group_norm/beta", "body.block3.unit01.gn2.beta"),
        ("resnet/group_norm/gamma", "head.gn.gamma"),
        ("resnet/head/conv2d/bias", "head.conv.bias"),
    ):
        np.testing.assert_array_equal(values[name].asnumpy(), arrays[key])
    assert not any((param.asnumpy() == 9).all() for param in values.values())


def test_every_file_of_one_origin_has_the_same_record(net, npz, tmp_path):
    written = convert(npz, tmp_path / "x.ckpt")
    assert load_pretrained(net, npz) == written == load_pretrained(net, tmp_path / "x.ckpt")


def test_the_record_is_read_without_a_network(npz, tmp_path):
    written = convert(npz, tmp_path / "x.ckpt")
    assert read_record(npz) == written == read_record(tmp_path / "x.ckpt")


def test_a_replaced_head_is_zero_and_the_rest_is_loaded(npz, arrays, caplog):
    net = get_network("bit_tiny", num_classes=3)
    with caplog.at_level(logging.INFO):
        load_pretrained(net, npz, replace_head=True)
    params = {param.name: param.asnumpy() for param in net.get_parameters()}
    assert params["head.conv.weight"].shape == (3, 2048, 1, 1)
    assert not params["head.conv.weight"].any()
    assert not params["head.conv.bias"].any()
    np.testing.assert_array_equal(params["head.gn.beta"], arrays["resnet/group_norm/beta"])
    (line,) = caplog.records
    assert line.message == f"{npz}: head dropped, 7 classes in the file and 3 in the network"


def test_a_head_of_the_same_size_is_replaced_as_well(net, values, npz):
    load_pretrained(net, npz, replace_head=True)
    assert not values["head.conv.weight"].asnumpy().any()
    assert not values["head.conv.bias"].asnumpy().any()


def test_a_kept_head_is_one_log_line(net, npz, caplog):
    with caplog.at_level(logging.INFO):
        load_pretrained(net, npz)
    (line,) = caplog.records
    assert line.message == f"{npz}: head kept, 7 classes in the file and 7 in the network"


def test_another_class_count_is_an_error_that_says_what_to_do(npz):
    net = get_network("bit_tiny", num_classes=3)
    with pytest.raises(UserError, match=r"head of 7 classes and the network one of 3; .*replace the head"):
        load_pretrained(net, npz)


def test_a_missing_array_is_named_and_the_network_stays(net, values, arrays, tmp_path):
    path = changed(arrays, tmp_path / "x.npz", without=["resnet/block2/unit01/b/group_norm/gamma"])
    with pytest.raises(UserError, match="missing 1: resnet/block2/unit01/b/group_norm/gamma"):
        load_pretrained(net, path)
    assert_untouched(values)


def test_an_unknown_array_is_named_and_the_network_stays(net, values, arrays, tmp_path):
    path = changed(arrays, tmp_path / "x.npz", surplus=np.zeros(3, np.float32))
    with pytest.raises(UserError, match="unexpected 1: surplus"):
        load_pretrained(net, path)
    assert_untouched(values)


def test_a_file_with_other_names_throughout_is_refused(net, values, arrays, tmp_path):
    np.savez(tmp_path / "x.npz", **{f"model/{key}": array for key, array in arrays.items()})
    with pytest.raises(UserError, match="wanted a BiT file"):
        load_pretrained(net, tmp_path / "x.npz")
    assert_untouched(values)


@pytest.mark.parametrize("replace_head", [False, True])
def test_a_checkpoint_of_another_network_is_refused(npz, tmp_path, replace_head):
    convert(npz, tmp_path / "x.ckpt")
    other = get_network("bit_tiny", num_classes=CLASSES, units=(1, 2, 1, 1))
    with pytest.raises(UserError, match=r"does not fit the network: missing 9: body.block2.unit02.gn1.gamma"):
        load_pretrained(other, tmp_path / "x.ckpt", replace_head=replace_head)


@pytest.mark.parametrize("suffix", [".npz", ".ckpt", ".safetensors"])
def test_a_flipped_byte_near_the_end_leaves_the_network_untouched(net, values, npz, tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    if suffix == ".npz":
        path.write_bytes(npz.read_bytes())
    else:
        convert(npz, path)
    flip_byte(path, path.stat().st_size * 9 // 10)
    with pytest.raises(UserError, match=r"is damaged: .*download it again"):
        load_pretrained(net, path)
    assert_untouched(values)


@pytest.mark.parametrize("name", ["none.npz", "none.ckpt", "none.safetensors"])
def test_a_missing_file_is_an_error(net, tmp_path, name):
    with pytest.raises(UserError, match=f"{name} does not exist"):
        load_pretrained(net, tmp_path / name)


def test_the_training_state_in_mindspores_checkpoints_is_left_out(net, values, tmp_path, caplog):
    for optimizer in (nn.Momentum, nn.SGD):
        path = str(tmp_path / "step.ckpt")
        step = nn.TrainOneStepCell(net, optimizer(net.trainable_params(), learning_rate=0.1, momentum=0.9))
        ms.save_checkpoint(step, path, append_dict={"epoch_num": 2, "step_num": 40})
        values["head.conv.bias"].set_data(ms.Tensor(np.zeros(CLASSES, np.float32)))
        with caplog.at_level(logging.DEBUG):
            assert load_pretrained(net, path) == {}
        assert (values["head.conv.bias"].asnumpy() == 9).all()
        assert [r.levelname for r in caplog.records] == ["DEBUG", "INFO"]
        caplog.clear()


@pytest.mark.parametrize("optimizer", [nn.Adam, nn.AdamWeightDecay, nn.Momentum, nn.SGD])
def test_the_names_of_an_optimizers_state_are_known(optimizer):
    layer = nn.Dense(2, 3)
    groups = [{"params": [layer.weight], "weight_decay": 0.1, "lr": 0.2}, {"params": [layer.bias]}]
    keywords = {"momentum": 0.9} if optimizer in (nn.Momentum, nn.SGD) else {}
    state = optimizer(groups, learning_rate=0.1, **keywords)
    names = {param.name for param in state.get_parameters()} - {"weight", "bias"}
    assert names
    assert {name for name in names - set(STATE_NAMES) if not name.startswith(STATE_PREFIXES)} == set()


@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_a_saved_network_comes_back_with_its_record(net, values, tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    save_parameters(net.parameters_dict(), path, {"network": "bit_tiny", "epoch": 3})
    with open_weights(path) as file:
        assert list(file.shapes) == list(values)
    for param in values.values():
        param.set_data(ms.Tensor(np.zeros(param.shape, np.float32)))
    assert load_pretrained(net, path) == {"network": "bit_tiny", "epoch": 3}
    assert_untouched(values)


def test_mindspore_loads_a_saved_network(net, values, tmp_path):
    save_parameters(net.parameters_dict(), tmp_path / "x.ckpt", {"network": "bit_tiny"})
    other = get_network("bit_tiny", num_classes=CLASSES)
    loaded = ms.load_checkpoint(str(tmp_path / "x.ckpt"), crc_check=True)
    missing, unused = ms.load_param_into_net(other, loaded)
    assert (missing, unused) == ([], ["weights_record"])
    assert_untouched({param.name: param for param in other.get_parameters()})


def test_a_vit_is_saved_loaded_and_given_a_new_head(tmp_path):
    net = get_network("vit_nano_patch8", num_classes=5, image_size=16)
    for param in net.get_parameters():
        param.set_data(ms.Tensor(np.random.default_rng(len(param.name)).normal(size=param.shape), ms.float32))
    save_parameters(net.parameters_dict(), tmp_path / "vit.ckpt", {"class_num": 5})
    same, tuned = (get_network("vit_nano_patch8", num_classes=n, image_size=16) for n in (5, 3))
    load_pretrained(same, tmp_path / "vit.ckpt")
    load_pretrained(tuned, tmp_path / "vit.ckpt", replace_head=True)
    for name, param in net.parameters_dict().items():
        np.testing.assert_array_equal(same.parameters_dict()[name].asnumpy(), param.asnumpy())
    np.testing.assert_array_equal(tuned.pos_embed.asnumpy(), net.pos_embed.asnumpy())
    assert not tuned.head.weight.asnumpy().any()
    with pytest.raises(UserError, match="a head of 5 classes and the network one of 3"):
        load_pretrained(tuned, tmp_path / "vit.ckpt")


@pytest.fixture(scope="module")
def vit_npz(tmp_path_factory):
    path = tmp_path_factory.mktemp("vit") / "ViT-nano.npz"
    np.savez(path, **golden_arrays(*VIT_ARCHITECTURES["vit_nano_patch8"], 21, grid=3, pre_logits=True))
    return path


def test_a_fine_tune_of_a_vit_drops_pre_logits_and_resizes_the_positions(vit_npz):
    net = get_network("vit_nano_patch8", num_classes=3, image_size=(16, 40))
    load_pretrained(net, vit_npz, replace_head=True)
    with np.load(vit_npz) as arrays:
        position = arrays["Transformer/posembed_input/pos_embedding"]
    np.testing.assert_array_equal(net.pos_embed.asnumpy(), resize_position(position, (3, 3), (2, 5)))
    assert not net.head.weight.asnumpy().any()


@pytest.mark.parametrize("shape", [(64,), (1, 64), (1, 0, 64), (1, 6, 64), (2, 5, 64)])
@pytest.mark.parametrize("grid", [None, 4, [2], [2, 3], [0, 0]])
def test_positions_of_no_grid_are_refused_in_one_line(shape, grid, tmp_path):
    net = get_network("vit_nano_patch8", num_classes=3, image_size=16)
    weights = [Weight(p.name, p.shape, p.asnumpy) for p in net.get_parameters() if p.name != "pos_embed"]
    weights.append(Weight("pos_embed", shape, lambda: np.zeros(shape, np.float32)))
    write_weights(tmp_path / "odd.ckpt", weights, {} if grid is None else {"grid": grid})
    with pytest.raises(UserError, match=r"wrong shape 1: pos_embed|no right grid"):
        load_pretrained(net, tmp_path / "odd.ckpt")


def test_pre_logits_that_the_network_lacks_are_an_error(vit_npz):
    net = get_network("vit_nano_patch8", num_classes=21, image_size=24)
    with pytest.raises(UserError, match="unexpected 2: pre_logits"):
        load_pretrained(net, vit_npz)


def test_a_grid_of_as_many_patches_but_another_shape_is_resized(tmp_path):
    wide = get_network("vit_nano_patch8", num_classes=3, image_size=(8, 32))
    save_parameters(wide.parameters_dict(), tmp_path / "wide.ckpt", describe(wide))
    square = get_network("vit_nano_patch8", num_classes=3, image_size=16)
    load_pretrained(square, tmp_path / "wide.ckpt")
    expected = resize_position(wide.pos_embed.asnumpy(), (1, 4), (2, 2))
    np.testing.assert_array_equal(square.pos_embed.asnumpy(), expected)


def test_a_converted_vit_is_the_network_of_its_npz(vit_npz, tmp_path):
    record = convert(vit_npz, tmp_path / "vit.safetensors")
    assert (record["network"], record["pre_logits"], record["grid"]) == ("vit_nano_patch8", True, [3, 3])
    nets = [get_network("vit_nano_patch8", num_classes=21, image_size=24, pre_logits=True) for _ in range(2)]
    for net, path in zip(nets, (vit_npz, tmp_path / "vit.safetensors")):
        load_pretrained(net, path)
    for name, param in nets[0].parameters_dict().items():
        np.testing.assert_array_equal(param.asnumpy(), nets[1].parameters_dict()[name].asnumpy())
