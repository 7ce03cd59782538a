import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from src.dropout import Dropout, seed_dropout
from src.network import get_network
from src.optimizer import get_optimizer
from src.train_step import TrainStep


class Pair(nn.Cell):
    """The masks of two layers, one above the other."""

    def __init__(self):
        super().__init__()
        self.first = Dropout(0.3)
        self.second = Dropout(0.3)

    def construct(self, x):
        return self.first(x), self.second(x)


@pytest.fixture(scope="module")
def masks():
    """(calls, layers, 30, 40, 50) of booleans, for two ranks: where an element is kept."""
    ones = Tensor(np.ones((30, 40, 50), np.float32))
    ranks = []
    for rank in range(2):
        pair = Pair().set_train()
        calls = seed_dropout(pair, 7, rank)
        found = []
        for number in (0, 1, 2, 1):
            calls.set_data(Tensor(number, ms.int32))
            found.append([out.asnumpy() for out in pair(ones)])
        ranks.append(np.array(found))
    return np.array(ranks)


def test_kept_elements_are_scaled_and_the_others_zero(masks):
    np.testing.assert_allclose(np.unique(masks), [0, 1 / 0.7], rtol=1e-6)


def test_every_axis_loses_its_share(masks):
    dropped = masks == 0
    for axis, size in enumerate((30, 40, 50)):
        shares = dropped.mean(axis=tuple({3, 4, 5} - {axis + 3}))
        deviation = np.sqrt(0.3 * 0.7 / (60_000 / size))
        assert np.abs(shares - 0.3).max() < 4.5 * deviation
        np.testing.assert_allclose(shares.std(), deviation, rtol=0.2)


def test_masks_of_calls_layers_ranks_and_neighbours_are_independent(masks):
    different = masks[:, :3].reshape(12, -1) == 0
    correlations = np.corrcoef(different) - np.eye(12)
    assert np.abs(correlations).max() < 4.5 / np.sqrt(60_000)
    rows = np.corrcoef(different[0].reshape(30, -1)) - np.eye(30)
    assert np.abs(rows).max() < 5 / np.sqrt(2_000)


def test_the_same_call_has_the_same_mask(masks):
    np.testing.assert_array_equal(masks[:, 1], masks[:, 3])


def test_evaluation_drops_nothing():
    pair = Pair()
    seed_dropout(pair, 7, 0)
    ones = np.ones((3, 4, 5), np.float32)
    for out in pair.set_train(False)(Tensor(ones)):
        np.testing.assert_array_equal(out.asnumpy(), ones)


def test_without_a_seed_it_is_mindspores():
    cell = Dropout(0.4).set_train()
    outs = [cell(Tensor(np.ones((200, 50), np.float32))).asnumpy() for _ in range(2)]
    np.testing.assert_allclose((outs[0] == 0).mean(), 0.4, atol=0.03)
    assert (outs[0] != outs[1]).any()


def test_the_zoo_holds_no_other_dropout_and_no_parameter_for_it():
    network = get_network(
        "vit_nano_patch8", num_classes=2, image_size=16, dropout=0.1, attention_dropout=0.1, drop_path=0.2
    )
    names = [p.name for p in network.get_parameters()]
    assert seed_dropout(network, 1, 0).name not in names
    assert [p.name for p in network.get_parameters()] == names
    cells = [cell for _, cell in network.cells_and_names()]
    ours = [cell for cell in cells if isinstance(cell, Dropout)]
    assert len({int(cell.key.asnumpy()) for cell in ours}) == len(ours) > 12
    assert sum(isinstance(cell, nn.Dropout) for cell in cells) == len(ours)
    assert seed_dropout(get_network("bit_tiny", num_classes=2), 1, 0) is None


class Weighted(nn.Cell):
    """Sum of dropped weights: the gradient of a weight is its mask."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones((1, 30), np.float32)), name="weight")
        self.dropout = Dropout(0.5)

    def construct(self, image, label):
        return (self.dropout(image * self.weight) * label).sum()


@pytest.mark.parametrize("split", [1, 2])
def test_each_micro_batch_has_a_mask_of_its_own_and_its_gradient_has_the_same(split):
    net = Weighted()
    calls = seed_dropout(net, 3, 0)
    optimizer = get_optimizer("momentum", net.trainable_params(), np.ones(9, np.float32), momentum=0.0)
    step = TrainStep(net, optimizer, batch_split=split, dropout_calls=calls).set_train()
    ones = Tensor(np.ones((2 * split, 30), np.float32))
    before, changes = net.weight.asnumpy().copy(), []
    for _ in range(2):
        loss, _, _ = step(ones, Tensor(np.ones((2 * split, 1), np.float32)))
        changes.append(before - net.weight.asnumpy())
        np.testing.assert_allclose(loss.asnumpy(), (changes[-1] * before).sum(), rtol=1e-5)
        before = net.weight.asnumpy().copy()
    assert (changes[0] != changes[1]).any()
    assert int(calls.asnumpy()) == 2 * split
    if split == 2:  # equal masks in both parts would give even numbers alone
        assert {1, 3} & set(np.round(changes[0]).astype(int).ravel())
