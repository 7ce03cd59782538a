import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from src.network import get_network
from src.optimizer import get_optimizer
from src.train_step import TrainStep
from src.weight_average import WeightAverage


class Line(nn.Cell):
    """mean(a * image * label), whose gradient does not depend on a; `b` is frozen."""

    def __init__(self):
        super().__init__()
        self.b = Parameter(Tensor([7.0, 8.0], ms.float32), name="b", requires_grad=False)
        self.a = Parameter(Tensor([[1.0, -2.0, 0.5]], ms.float32), name="a")

    def construct(self, image, label):
        return (self.a * image * label).mean() + 0.0 * self.b.sum()


def test_the_average_follows_as_in_float64():
    net, rates = Line(), np.array([0.5, 0.25, 1.0, 0.125], np.float32)
    average = WeightAverage(net, 0.25, len(rates))
    optimizer = get_optimizer("momentum", net.trainable_params(), rates, momentum=0.0)
    step = TrainStep(net, optimizer, average=average).set_train()
    weight = expected = np.array([[1.0, -2.0, 0.5]])
    for t in range(1, len(rates) + 1):
        image = np.full((2, 3), float(t))
        if t == 3:
            image[0, 0] = np.inf  # left out: no step of the average either
        step(Tensor(image, ms.float32), Tensor(np.ones((2, 1)), ms.float32))
        if t != 3:
            applied = t - (t > 3)
            weight = weight - rates[applied - 1] * t / 3
            expected = expected + (1 - min(0.25, (1 + applied) / (10 + applied))) * (weight - expected)
    params = average.network.parameters_dict()
    np.testing.assert_allclose(net.a.asnumpy(), weight, rtol=1e-6)
    np.testing.assert_allclose(params["average.a"].asnumpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(params["average.b"].asnumpy(), [7, 8])


def test_it_is_a_network_of_its_own_with_the_same_answers():
    net = get_network("bit_tiny", num_classes=3)
    for param in net.get_parameters():
        if param.name.startswith("head"):
            param.set_data(Tensor(np.random.default_rng(1).normal(size=param.shape), ms.float32))
    average = WeightAverage(net, 0.9, 5)
    images = Tensor(np.random.default_rng(2).normal(size=(2, 3, 17, 20)), ms.float32)
    before = net.set_train(False)(images).asnumpy()
    np.testing.assert_array_equal(average.network.set_train(False)(images).asnumpy(), before)
    for param in net.get_parameters():
        param.set_data(Tensor(np.zeros(param.shape), ms.float32))
    np.testing.assert_array_equal(average.network(images).asnumpy(), before)
    assert not average.network.trainable_params()
    assert [p.name for p in net.get_parameters()] == [
        p.name[len("average.") :] for p in average.network.get_parameters()
    ]
