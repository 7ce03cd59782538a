import json
import re
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import onnx
import onnxruntime
import pytest
from bit_npz import golden_arrays as bit_arrays
from support import GOLDEN, assert_golden, uniform_images
from vit_npz import golden_arrays as vit_arrays

from src.checkpoint import load_pretrained
from src.errors import UserError
from src.fold import fold
from src.network import canonical_name, describe, get_network
from src.onnx_graph import build_onnx, write_onnx
from src.vit_map import VIT_ARCHITECTURES

NETWORKS = {  # odd and non-square sizes, every choice of ViT
    "bit": ("bit_tiny", (65, 39), {}),
    "vit_token": ("vit_nano_patch8", (40, 24), {"pool": "token"}),
    "vit_mean_exact": ("vit_nano_patch8", (24, 56), {"pool": "mean", "gelu": "exact"}),
    "vit_pre_logits": ("vit_nano_patch8", (8, 24), {"pool": "token", "pre_logits": True}),
}


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


def load(folder, name, image_size, *, num_classes, grid=3, **arguments):
    """The network with the seeded weights of the golden files, folded."""
    if name.startswith("bit"):
        arrays = bit_arrays((1, 1, 1, 1), 1, num_classes)
    else:
        token, pre_logits = arguments.get("pool") != "mean", arguments.get("pre_logits", False)
        sizes = VIT_ARCHITECTURES[name]
        arrays = vit_arrays(*sizes, num_classes, grid=grid, pre_logits=pre_logits, token=token)
    np.savez(folder / "weights.npz", **arrays)
    net = get_network(name, num_classes=num_classes, image_size=image_size, **arguments)
    load_pretrained(net, folder / "weights.npz")
    return fold(net)


def convert(net, name, image_size):
    weights = {param.name: param.asnumpy() for param in net.get_parameters()}
    return build_onnx(name, weights, image_size=image_size, arguments=describe(net))


def run(model, images):
    """Logits of a file or of a model in memory."""
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"image": images})[0]


@pytest.fixture(scope="module", params=NETWORKS)
def case(request, tmp_path_factory):
    name, image_size, arguments = NETWORKS[request.param]
    net = load(tmp_path_factory.mktemp("npz"), name, image_size, num_classes=11, **arguments)
    return net, name, image_size, convert(net, name, image_size)


@pytest.fixture(scope="module")
def nano(tmp_path_factory):
    """A small model of several hundred kilobytes."""
    net = load(tmp_path_factory.mktemp("npz"), "vit_nano_patch8", (24, 24), num_classes=5)
    return convert(net, "vit_nano_patch8", (24, 24))


@pytest.fixture
def weights():
    net = get_network("vit_nano_patch8", num_classes=5, image_size=(16, 24))
    return {param.name: param.asnumpy() for param in net.get_parameters()}


def build_nano(weights):
    arguments = {"grid": [2, 3], "pool": "token", "pre_logits": False, "gelu": "tanh"}
    return build_onnx("vit_nano_patch8", weights, image_size=(16, 24), arguments=arguments)


def test_one_file_gives_the_logits_of_mindspore_for_every_batch(case, tmp_path):
    net, _, image_size, model = case
    write_onnx(model, tmp_path / "net.onnx")
    for count in (1, 3):
        images = uniform_images(count, *image_size, count)
        expected = net(ms.Tensor(images)).asnumpy()
        logits = run(tmp_path / "net.onnx", images)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
        assert (logits.argmax(1) == expected.argmax(1)).all()


def test_the_epsilons_are_those_of_the_network(case):
    """Faint activations: the epsilon of the first norms is as large as the variance."""
    net, name, image_size, _ = case
    faint = {"patch_embed.proj.weight", "patch_embed.proj.bias", "pos_embed", "cls_token"}
    images = uniform_images(1, *image_size, 0) * (np.float32(1e-3) if name.startswith("bit") else 1)
    loud = {param.name: param.asnumpy().copy() for param in net.get_parameters() if param.name in faint}
    for param_name, value in loud.items():
        net.parameters_dict()[param_name].set_data(ms.Tensor(value * np.float32(1e-3)))
    logits = run(convert(net, name, image_size), images)
    np.testing.assert_allclose(logits, net(ms.Tensor(images)).asnumpy(), rtol=0, atol=1e-4)
    for param_name, value in loud.items():
        net.parameters_dict()[param_name].set_data(ms.Tensor(value))


@pytest.mark.parametrize(("family", "index"), [("bit", 1), ("vit", 0), ("vit", 1)])
def test_logits_equal_those_of_googles_code(family, index, tmp_path):
    case = json.loads((GOLDEN / f"{family}_logits.json").read_text())["cases"][index]
    name = "bit_tiny" if family == "bit" else canonical_name(case["name"])
    image_size = (case["height"], case["width"]) if family == "bit" else (case["size"], case["size"])
    grid = case.get("pretrain_size", image_size[0]) // 16
    net = load(tmp_path, name, image_size, num_classes=case["num_classes"], grid=grid)
    images = uniform_images(case["n"], *image_size, case["seed"])
    assert_golden(run(convert(net, name, image_size), images), case)


def test_the_file_says_what_it_is(case):
    _, name, image_size, model = case
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    assert {prop.key: prop.value for prop in model.metadata_props} == {"network": name, "class_num": "11"}
    assert name in model.doc_string
    assert f"{image_size[0]} x {image_size[1]}" in model.doc_string
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ports = [(port.name, port.shape, port.type) for port in (*session.get_inputs(), *session.get_outputs())]
    image = ("image", ["N", 3, *image_size], "tensor(float)")
    assert ports == [image, ("logits", ["N", 11], "tensor(float)")]


def test_the_batch_is_free_in_every_node(case):
    model = onnx.shape_inference.infer_shapes(case[3], strict_mode=True, data_prop=True)
    shapes = {value.name: value.type.tensor_type.shape.dim for value in model.graph.value_info}
    outputs = [name for node in model.graph.node for name in node.output if name != "logits"]
    assert set(outputs) == set(shapes)
    assert {shapes[name][0].dim_param for name in outputs} == {"N"}
    assert all(dim.dim_value for name in outputs for dim in shapes[name][1:])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda w: w.pop("blocks.2.attn.v.bias"), "wants blocks.2.attn.v.bias, which the weights lack"),
        (lambda w: w.update({"head.scale": np.ones(5, np.float32)}), "1 weights have no place.*head.scale"),
        (lambda w: w.update({"norm.beta": np.ones(63, np.float32)}), r"norm.beta is \(63,\) float32"),
        (lambda w: w.update({"norm.beta": np.ones(64)}), r"norm.beta is \(64,\) float64"),
        (lambda w: w.update({"head.bias": np.ones(6, np.float32)}), r"head.bias is \(6,\).* wants \(5,\)"),
    ],
)
def test_weights_that_do_not_make_the_network_are_refused(weights, change, text):
    build_nano(weights)
    change(weights)
    with pytest.raises(ValueError, match=text):
        build_nano(weights)


def test_a_grid_of_another_image_is_refused(weights):
    arguments = {"grid": [3, 2], "pool": "token", "pre_logits": False, "gelu": "tanh"}
    with pytest.raises(ValueError, match="no grid"):
        build_onnx("vit_nano_patch8", weights, image_size=(16, 24), arguments=arguments)


def test_an_unknown_network_is_refused():
    with pytest.raises(ValueError, match="bit_r51x1"):
        build_onnx("bit_r51x1", {}, image_size=(8, 8), arguments={})


def test_without_the_onnx_package_one_line_says_what_to_install(weights, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=re.escape("pip install -r requirements-onnx.txt")):
        build_nano(weights)


def test_large_arrays_go_into_a_second_file(nano, tmp_path):
    before = nano.SerializeToString()
    write_onnx(nano, tmp_path / "a" / "net.onnx", max_bytes=100_000)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["net.onnx", "net.onnx.data"]
    assert (tmp_path / "a" / "net.onnx").stat().st_size < 100_000
    assert nano.SerializeToString() == before
    light = onnx.load(tmp_path / "a" / "net.onnx", load_external_data=False)
    places = [{e.key: e.value for e in array.external_data} for array in light.graph.initializer]
    assert {place["location"] for place in places if place} == {"net.onnx.data"}
    assert not [place for place in places if place and int(place["offset"]) % 4096]  # can be mapped
    (tmp_path / "a").rename(tmp_path / "b")  # the pair may move together
    onnx.checker.check_model(str(tmp_path / "b" / "net.onnx"), full_check=True)
    assert onnx.load(tmp_path / "b" / "net.onnx").metadata_props == nano.metadata_props
    images = uniform_images(2, 24, 24, 0)
    np.testing.assert_array_equal(run(tmp_path / "b" / "net.onnx", images), run(nano, images))


def test_a_smaller_export_leaves_no_arrays_of_the_one_before(nano, tmp_path):
    write_onnx(nano, tmp_path / "net.onnx", max_bytes=0)
    write_onnx(nano, tmp_path / "net.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    assert onnx.load(tmp_path / "net.onnx") == nano


@pytest.mark.parametrize("max_bytes", [0, 2**30])
def test_a_full_disk_leaves_what_stood_there(nano, tmp_path, monkeypatch, max_bytes):
    write_onnx(nano, tmp_path / "net.onnx", max_bytes=0)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match=r"net.onnx: No space left on device"):
        write_onnx(nano, tmp_path / "net.onnx", max_bytes=max_bytes)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_old_graph_never_stands_beside_new_arrays(nano, tmp_path, monkeypatch):
    write_onnx(nano, tmp_path / "net.onnx", max_bytes=0)
    replace = Path.replace

    def interrupted(self, target):
        if target.name == "net.onnx":
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_onnx(nano, tmp_path / "net.onnx", max_bytes=0)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx.data"]
