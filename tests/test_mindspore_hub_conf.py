import numpy as np
import pytest
from mindspore.nn.utils import no_init_parameters
from vit_npz import golden_arrays

from mindspore_hub_conf import create_network
from src.errors import UserError
from src.network import NETWORKS
from src.vit_map import VIT_ARCHITECTURES


@pytest.mark.parametrize("name", [*NETWORKS, "ViT-B_16", "BiT-M-R50x1"])
def test_every_name_of_the_zoo_is_served(name):
    with no_init_parameters():
        network = create_network(name, num_classes=7)
    assert list(network.get_parameters())[-1].shape == (7,)


def test_weights_and_arguments_are_taken(tmp_path):
    arrays = golden_arrays(*VIT_ARCHITECTURES["vit_nano_patch8"], 21, grid=4, token=False)
    np.savez(tmp_path / "nano.npz", **arrays)
    network = create_network("vit_nano_patch8", pretrained=str(tmp_path / "nano.npz"))
    assert (network.pool, network.grid) == ("mean", (4, 4))  # as the file says
    with pytest.raises(UserError, match="holds a vit_nano_patch8, not a bit_tiny"):
        create_network("bit_tiny", pretrained=str(tmp_path / "nano.npz"))
    resized = create_network("vit_nano_patch8", pretrained=str(tmp_path / "nano.npz"), image_size=48)
    assert resized.grid == (6, 6)
    np.testing.assert_array_equal(network.head.weight.asnumpy(), arrays["head/kernel"].T)


def test_an_unknown_name_or_argument_is_refused():
    with pytest.raises(UserError, match="did you mean 'vit_base_patch32'"):
        create_network("vit_base_patch_32")
    with pytest.raises(UserError, match="has no argument droput"):
        create_network("vit_nano_patch8", droput=0.1)
