import numpy as np
from mindspore import nn

from src.eval_engine import evaluate


class Means(nn.Cell):
    """The mean of each channel: the logits of three classes."""

    def construct(self, image):
        return image.mean((2, 3))


def batches(count):
    """Batches of two images of the class 1, and of padding in the last."""
    images = np.zeros((2, 3, 4, 5), np.float32)
    images[:, 1] = 1
    for number in range(count):
        yield images, np.array([1, 1 if number < count - 1 else -1], np.int32)


def test_all_batches_count_and_the_network_is_left_in_its_mode(capsys):
    network = Means().set_train()
    assert evaluate(network, batches(3), progress_bar=True) == {"top1": 1.0, "top5": None, "samples": 5}
    assert network.training
    assert not capsys.readouterr().err  # no bar without a terminal


def test_an_evaluation_is_given_up_after_the_batch_in_which_it_is_told_to():
    asked = []
    source = batches(5)
    network = Means().set_train()
    assert evaluate(network, source, stopped=lambda: asked.append(1) or len(asked) == 2) is None
    assert len(list(source)) == 3
    assert network.training
