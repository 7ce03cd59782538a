import mindspore as ms
import numpy as np
from bit_npz import golden_arrays
from mindspore import Tensor
from support import uniform_images

from src.checkpoint import load_pretrained
from src.fold import fold
from src.network import get_network


def test_a_folded_network_computes_the_same_without_standardising(tmp_path):
    ms.set_context(mode=ms.GRAPH_MODE)
    np.savez(tmp_path / "tiny.npz", **golden_arrays((1, 1, 1, 1), 1, 10))
    images = Tensor(uniform_images(2, 40, 33, 0))
    plain, folded = (get_network("bit_tiny", num_classes=10) for _ in range(2))
    for network in (plain, folded):
        load_pretrained(network, tmp_path / "tiny.npz")
    names = [p.name for p in plain.get_parameters()]
    assert fold(folded) is folded
    assert [p.name for p in folded.get_parameters()] == names
    rows = folded.body.block2.unit01.conv2.weight.asnumpy().reshape(128, -1)
    np.testing.assert_allclose(rows.mean(1), 0, atol=1e-7)
    np.testing.assert_allclose(rows.std(1), 1, atol=1e-6)
    assert not [cell for _, cell in folded.cells_and_names() if type(cell).__name__ == "Standardise"]
    np.testing.assert_allclose(folded(images).asnumpy(), plain(images).asnumpy(), rtol=0, atol=1e-5)


def test_a_folded_vit_computes_all_tokens_and_the_same_logits():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(3)
    network = get_network("vit_nano_patch8", num_classes=3, image_size=16).set_train(False)
    network.head.weight.set_data(Tensor(np.linspace(-1, 1, 3 * 64).reshape(3, 64), ms.float32))
    images = Tensor(uniform_images(2, 16, 16, 0))
    logits = network(images).asnumpy()
    assert [block.first_only for block in network.blocks][-2:] == [False, True]
    whole = get_network("vit_nano_patch8", num_classes=3, image_size=16)
    ms.load_param_into_net(whole, network.parameters_dict())
    assert not any(block.first_only for block in fold(whole).blocks)
    np.testing.assert_allclose(whole(images).asnumpy(), logits, rtol=0, atol=1e-5)


def test_a_vit_has_nothing_to_fold():
    network = get_network("vit_nano_patch8", num_classes=3, image_size=16)
    before = [p.asnumpy().copy() for p in network.get_parameters()]
    for old, param in zip(before, fold(network).get_parameters()):
        np.testing.assert_array_equal(param.asnumpy(), old)
