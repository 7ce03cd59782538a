import numpy as np
import pytest
from mindspore.nn.utils import no_init_parameters

from src.errors import UserError
from src.network import NETWORKS, canonical_name, get_network

PARAMETERS = {  # with 1,000 classes
    "bit_tiny": 10_057_256,
    "bit_r50x1": 25_549_352,
    "bit_r50x3": 217_319_080,
    "bit_r101x1": 44_541_480,
    "bit_r101x3": 387_934_888,
    "bit_r152x2": 236_335_208,
    "bit_r152x4": 936_533_224,
    "vit_nano_patch8": 261_672,
    "vit_tiny_patch16": 5_717_416,
    "vit_small_patch16": 22_050_664,
    "vit_small_patch32": 22_878_952,
    "vit_base_patch8": 86_576_872,
    "vit_base_patch16": 86_567_656,
    "vit_base_patch32": 88_224_232,
    "vit_large_patch16": 304_326_632,
    "vit_large_patch32": 306_535_400,
    "vit_huge_patch14": 632_045_800,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_its_exact_number_of_parameters(name):
    with no_init_parameters():
        net = get_network(name, num_classes=1000)
    assert sum(int(np.prod(p.shape)) for p in net.get_parameters()) == PARAMETERS[name]


def test_the_head_starts_at_zero():
    net = get_network("bit_tiny", num_classes=7, image_size=(33, 47))
    assert net.head.conv.weight.shape == (7, 2048, 1, 1)
    assert not net.head.conv.weight.asnumpy().any()
    assert not net.head.conv.bias.asnumpy().any()


def test_arguments_replace_those_of_the_table():
    with no_init_parameters():
        net = get_network("bit_tiny", num_classes=3, width=2)
    assert net.root.conv.weight.shape == (128, 3, 7, 7)


@pytest.mark.parametrize(
    "name",
    [
        "bit_r50x1",
        "BIT_R50X1",
        "BiT-M-R50x1",
        "BiT-S-R50x1",
        "BiT-M-R50x1-ILSVRC2012",
        "R50x1_224",
        "bit-m-r50x1",
    ],
)
def test_googles_names_are_accepted(name):
    assert canonical_name(name) == "bit_r50x1"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        *[
            ("ViT-B_16", "vit_base_patch16"),
            ("ViT-B/32", "vit_base_patch32"),
            ("ViT-Ti_16", "vit_tiny_patch16"),
        ],
        *[("vit_base_patch32", "vit_base_patch32"), ("ViT-H_14", "vit_huge_patch14")],
    ],
)
def test_googles_names_of_vit_are_accepted(name, ours):
    assert canonical_name(name) == ours


def test_vit_is_built_for_the_image_size():
    with no_init_parameters():
        net = get_network("vit_nano_patch8", num_classes=3, image_size=(24, 40), pool="mean", pre_logits=True)
    assert net.pos_embed.shape == (1, 15, 64)
    assert net.head.weight.shape == (3, 64)


@pytest.mark.parametrize("name", ["bit_r50x2", "resnet50", "", "BiT-M-R50x7", "BiT-X-R50x1"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(UserError, match=r"did you mean '\w+'\? There are: bit_tiny, bit_r50x1"):
        canonical_name(name)


@pytest.mark.parametrize(
    "wrong",
    [{"num_classes": 0}, {"num_classes": 2.5}, {"image_size": 0}, {"image_size": (8, -1)}, {"depth": 12}],
)
def test_arguments_that_make_no_network_are_refused(wrong):
    with pytest.raises(UserError):
        get_network("bit_tiny", **{"num_classes": 3, **wrong})
