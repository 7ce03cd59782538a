import os
from functools import lru_cache

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import mind_ir_pb2 as pb
from mindspore.train import serialization
from support import uniform_images

from src.errors import UserError
from src.fold import fold
from src.mindir_v1 import rewrite
from src.network import get_network

KINDS = pb.AttributeProto
CASES = {  # name -> network, arguments, shape of the images
    "bit": ("bit_tiny", {}, (2, 3, 64, 96)),
    "vit": ("vit_nano_patch8", {"image_size": (16, 24)}, (4, 3, 16, 24)),
    "vit_exact_mean": (
        "vit_nano_patch8",
        {"image_size": (24, 16), "pool": "mean", "pre_logits": True, "gelu": "exact"},
        (1, 3, 24, 16),
    ),
}
INPUTS = {  # how many inputs the operators of version 1 have
    "Add": 2, "BatchMatMul": 2, "BiasAdd": 2, "BroadcastTo": 1, "Concat": 1, "Conv2D": 2, "Depend": 2,
    "Div": 2, "Erf": 1, "Flatten": 1, "LayerNorm": 3, "Load": 2, "MatMul": 2, "MaxPool": 1, "Mul": 2,
    "Pad": 1, "Pow": 2, "ReLU": 1, "ReduceMean": 2, "Reshape": 2, "Softmax": 1, "StridedSlice": 4, "Tanh": 1,
    "Transpose": 2, "TupleGetItem": 2, "UpdateState": 2,
}  # fmt: skip


def exported(name, folder):
    """A network with weights that none of its parts can hide, its file of version 3, images and logits."""
    ms.set_context(mode=ms.GRAPH_MODE)
    network_name, arguments, shape = CASES[name]
    network = get_network(network_name, num_classes=5, **arguments)
    rng = np.random.default_rng(3)
    for param in network.get_parameters():
        fan_in = np.prod(param.shape[1:]) if param.ndim > 1 else 16
        values = rng.standard_normal(param.shape) / np.sqrt(fan_in) + param.name.endswith("gamma")
        param.set_data(ms.Tensor(values.astype(np.float32)))
    network = fold(network)
    ms.export(
        network, ms.Tensor(np.zeros(shape, np.float32)), file_name=str(folder / name), file_format="MINDIR"
    )
    images = uniform_images(shape[0], *shape[2:], 0)
    return folder / f"{name}.mindir", images, network(ms.Tensor(images)).asnumpy()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return lru_cache(lambda name: exported(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(params=CASES)
def case(request, files):
    return files(request.param)


@pytest.fixture
def vit(files):
    return files("vit")


def read(path):
    return pb.ModelProto.FromString(path.read_bytes())


def run(path, images):
    return nn.GraphCell(ms.load(str(path)))(ms.Tensor(images)).asnumpy()


def operators(model):
    """(operator, its attributes, node) of all nodes but the constants."""
    primitives = {f"REF::{item.name}": item for item in model.primitives}
    for node in model.graph.node:
        if node.op_type != "Constant":
            primitive = primitives[node.op_type]
            yield primitive.op_type, {item.name: item for item in primitive.attribute}, node


def only(model, op):
    """The attributes of the first node of an operator."""
    return next(attributes for found, attributes, _ in operators(model) if found == op)


def test_mindspore_computes_the_same_from_the_rewritten_file(case, tmp_path):
    path, images, logits = case
    rewrite(path, tmp_path / "one.mindir")
    assert np.abs(logits).max() > 0.3
    np.testing.assert_allclose(run(tmp_path / "one.mindir", images), logits, rtol=0, atol=1e-4)


def test_the_file_says_version_1_and_holds_the_same_weights(case, tmp_path):
    path, _, _ = case
    rewrite(path, tmp_path / "one.mindir")
    before, after = read(path), read(tmp_path / "one.mindir")
    assert (before.mind_ir_version, after.mind_ir_version) == (3, 1)
    old = list(before.graph.parameter)
    assert list(after.graph.parameter)[: len(old)] == old
    assert after.graph.input == before.graph.input
    assert after.graph.output == before.graph.output


def test_operators_have_the_inputs_of_version_1(case, tmp_path):
    path, _, _ = case
    rewrite(path, tmp_path / "one.mindir")
    model = read(tmp_path / "one.mindir")
    found = {(op, len(node.input)) for op, _, node in operators(model) if op != "MakeTuple"}
    assert found <= set(INPUTS.items())


def test_every_constant_is_read_and_stands_before_its_reader(case, tmp_path):
    path, _, _ = case
    rewrite(path, tmp_path / "one.mindir")
    graph = read(tmp_path / "one.mindir").graph
    known = {item.name for item in [*graph.input, *graph.parameter]}
    for node in graph.node:
        assert set(node.input) <= known
        known |= set(node.output)
        if node.op_type == "Constant":
            assert any(node.output[0] in other.input for other in graph.node)
            assert node.attribute[0].type != KINDS.TENSORS  # Lite wants them as parameters
    assert graph.output[0].name in known


def test_trailing_inputs_become_attributes(vit, tmp_path):
    path, _, _ = vit
    rewrite(path, tmp_path / "one.mindir")
    model = read(tmp_path / "one.mindir")
    assert [value.ints[0] for value in only(model, "Softmax")["axis"].values] == [-1]
    assert only(model, "LayerNorm")["epsilon"].f == np.float32(1e-6)
    assert only(model, "LayerNorm")["begin_norm_axis"].i == -1
    matmul = only(model, "MatMul")
    assert (matmul["transpose_a"].type, matmul["transpose_b"].type) == (KINDS.BOOL, KINDS.BOOL)
    assert (matmul["transpose_a"].i, matmul["transpose_b"].i) == (0, 1)
    assert only(model, "Concat")["axis"].i == 1
    assert only(model, "BiasAdd")["format"].s == only(model, "BiasAdd")["data_format"].s == b"NCHW"
    assert [value.ints[0] for value in only(model, "BroadcastTo")["shape"].values] == [4, 1, 64]
    masks = only(model, "StridedSlice")
    assert [masks[f"{name}_mask"].i for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")] == [
        1, 1, 0, 0, 2,
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "op", "number"), [("vit", "Pow", 3.0), ("vit_exact_mean", "Div", 2**0.5)])
def test_the_numbers_of_gelu_are_parameters(files, name, op, number, tmp_path):
    rewrite(files(name)[0], tmp_path / "one.mindir")
    model = read(tmp_path / "one.mindir")
    parameters = {item.name: item for item in model.graph.parameter}
    node = next(node for found, _, node in operators(model) if found == op)
    assert np.frombuffer(parameters[node.input[1]].raw_data, np.float32) == np.float32(number)
    assert list(parameters[node.input[1]].dims) == []


def test_equal_constants_and_primitives_are_written_once(vit, tmp_path):
    path, _, _ = vit
    rewrite(path, tmp_path / "one.mindir")
    model = read(tmp_path / "one.mindir")
    assert sum(primitive.op_type == "MatMul" for primitive in model.primitives) == 1
    threes = [p for p in model.graph.parameter if p.raw_data == np.float32(3).tobytes()]
    assert len(threes) == 1


def test_a_network_in_parts_takes_its_weights_along(vit, tmp_path, monkeypatch):
    monkeypatch.setattr(serialization, "TOTAL_SAVE", 0)  # KiB above which MindSpore writes parts
    _, images, logits = vit
    exported("vit", tmp_path)
    source, target = tmp_path / "vit_graph.mindir", tmp_path / "elsewhere" / "one_graph.mindir"
    target.parent.mkdir()
    rewrite(source, target)
    rewrite(source, source)
    for path in (source, target):
        np.testing.assert_allclose(run(path, images), logits, rtol=0, atol=1e-4)


def test_missing_weights_of_a_network_in_parts_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(serialization, "TOTAL_SAVE", 0)
    exported("vit", tmp_path)
    (tmp_path / "vit_variables/data_0").unlink()
    with pytest.raises(UserError, match=r"vit_variables/data_0 is missing"):
        rewrite(tmp_path / "vit_graph.mindir", tmp_path / "one.mindir")
    assert not (tmp_path / "one.mindir").exists()


def changed(vit, tmp_path, change):
    """A copy of the file of version 3 with a change."""
    model = read(vit[0])
    change(model)
    path = tmp_path / "changed.mindir"
    path.write_bytes(model.SerializeToString())
    return path


def test_an_operator_without_a_rule_is_named(vit, tmp_path):
    def change(model):
        next(item for item in model.primitives if item.op_type == "Softmax").op_type = "Cumsum"

    path = changed(vit, tmp_path, change)
    with pytest.raises(UserError, match=r"changed\.mindir: there is no rule for the operator Cumsum"):
        rewrite(path, path)


def test_a_call_of_a_function_is_an_unknown_operator(vit, tmp_path):
    def change(model):
        next(node for node in model.graph.node if node.op_type != "Constant").op_type = "REF::loop"

    path = changed(vit, tmp_path, change)
    with pytest.raises(UserError, match="operator REF::loop"):
        rewrite(path, path)


def test_an_argument_that_is_computed_is_refused(vit, tmp_path):
    def change(model):
        node = next(node for op, _, node in operators(model) if op == "Softmax")
        node.input[1] = node.input[0]

    path = changed(vit, tmp_path, change)
    with pytest.raises(UserError, match=r"input 1 of Default/.*Softmax.* is computed"):
        rewrite(path, path)


@pytest.mark.parametrize("op", ["BiasAdd", "LayerNorm"])
def test_an_operator_with_other_inputs_is_refused(vit, tmp_path, op):
    def change(model):
        node = next(node for found, _, node in operators(model) if found == op)
        node.input.append(node.input[-1])

    path = changed(vit, tmp_path, change)
    with pytest.raises(UserError, match=f"operator {op} has .* inputs"):
        rewrite(path, path)


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.99, 0.99999])
def test_a_truncated_file_is_refused(vit, tmp_path, share):
    content = vit[0].read_bytes()
    (tmp_path / "cut.mindir").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=r"cut\.mindir is (no MindIR|a MindIR of version 0, or damaged)"):
        rewrite(tmp_path / "cut.mindir", tmp_path / "one.mindir")


@pytest.mark.parametrize("content", [b"PK\x03\x04 not this", b"# words\n" * 40, b"\x12\x03\xba\xc6\xb0"])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "other.mindir").write_bytes(content)
    with pytest.raises(UserError, match=r"other\.mindir is no MindIR"):
        rewrite(tmp_path / "other.mindir", tmp_path / "one.mindir")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*none\.mindir: No such file"):
        rewrite(tmp_path / "none.mindir", tmp_path / "one.mindir")


def test_a_file_of_version_1_is_refused(vit, tmp_path):
    rewrite(vit[0], tmp_path / "one.mindir")
    with pytest.raises(UserError, match=r"of version 1, .* wanted is version 3"):
        rewrite(tmp_path / "one.mindir", tmp_path / "two.mindir")


def test_the_source_may_be_the_target_and_everybody_may_read_it(vit, tmp_path):
    path = tmp_path / "same.mindir"
    path.write_bytes(vit[0].read_bytes())
    path.chmod(0o400)
    mask = os.umask(0o077)
    try:
        rewrite(path, path)
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644
    assert read(path).mind_ir_version == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_target(vit, tmp_path, monkeypatch):
    target = tmp_path / "one.mindir"
    target.write_bytes(b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        rewrite(vit[0], target)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
