import pytest

from src.errors import UserError
from src.network import get_network
from src.param_rules import check_words, is_decayed, layer_scales, match_frozen


def parameters_of(name, **options):
    return list(get_network(name, num_classes=3, **options).get_parameters())


@pytest.fixture(scope="module")
def vit():
    return parameters_of("vit_nano_patch8", image_size=16, pre_logits=True)


@pytest.fixture(scope="module")
def bit():
    return parameters_of("bit_tiny", units=(1, 3, 1, 2))


def test_vits_kernels_alone_are_decayed(vit):
    decayed = {p.name for p in vit if is_decayed(p.name, p.ndim)}
    assert decayed == {p.name for p in vit if p.name.endswith(".weight")}
    assert "patch_embed.proj.weight" in decayed
    assert "head.weight" in decayed


def test_bits_kernels_alone_are_decayed(bit):
    assert {p.name for p in bit if is_decayed(p.name, p.ndim)} == {
        p.name for p in bit if p.name.endswith(".weight")
    }


def test_a_word_of_the_filter_spares_every_name_with_it():
    assert not is_decayed("blocks.1.attn.q.weight", 2, ["beta", "attn"])
    assert is_decayed("blocks.1.mlp.fc1.weight", 2, ["beta", "attn"])
    assert is_decayed("head.weight", 2, [""])  # an empty word is none


def test_vits_scales_fall_from_the_head_to_the_patches(vit):
    scales = layer_scales([p.name for p in vit], 0.5)
    expected = {
        "cls_token": 1 / 32,
        "pos_embed": 1 / 32,
        "patch_embed.proj.weight": 1 / 32,
        "patch_embed.proj.bias": 1 / 32,
        "blocks.0.norm1.gamma": 1 / 16,
        "blocks.1.attn.q.weight": 1 / 8,
        "blocks.2.mlp.fc2.bias": 1 / 4,
        "blocks.3.attn.proj.weight": 1 / 2,
        "norm.gamma": 1,
        "pre_logits.weight": 1,
        "head.bias": 1,
    }
    assert {name: scales[name] for name in expected} == expected
    assert len(scales) == len(vit)


def test_the_tenth_block_comes_after_the_ninth():
    names = [f"blocks.{i}.norm1.gamma" for i in range(12)]
    assert list(layer_scales(names, 0.5).values()) == [0.5 ** (12 - i) for i in range(12)]


def test_bits_units_are_counted_through_the_blocks(bit):
    scales = layer_scales([p.name for p in bit], 0.5)
    units = ["block1.unit01", "block2.unit01", "block2.unit02", "block2.unit03", "block3.unit01"]
    units += ["block4.unit01", "block4.unit02"]
    assert scales["root.conv.weight"] == 0.5**8
    for layer, unit in enumerate(units, 1):
        assert scales[f"body.{unit}.conv2.weight"] == scales[f"body.{unit}.gn3.beta"] == 0.5 ** (8 - layer)
    assert scales["head.gn.gamma"] == scales["head.conv.bias"] == 1


def test_a_name_of_no_layer_is_our_fault():
    with pytest.raises(ValueError, match="belongs to no layer") as caught:
        layer_scales(["head.weight", "tail.weight"], 0.5)
    assert not isinstance(caught.value, UserError)


@pytest.mark.parametrize("decay", [0.0, 1.01, -0.5, float("nan")])
def test_a_decay_out_of_its_range_is_refused(decay):
    with pytest.raises(UserError, match="above 0 and at most 1"):
        layer_scales(["head.weight"], decay)


NAMES = [
    "patch_embed.proj.weight",
    "pos_embed",
    *(f"blocks.{i}.{leaf}" for i in (0, 3, 5, 6, 30) for leaf in ("norm1.gamma", "mlp.fc1.weight")),
    "head.weight",
]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["patch_embed.*", "pos_embed"], NAMES[:2]),
        (["blocks.3"], NAMES[4:6]),
        (["blocks.[0-5].*"], NAMES[2:8]),
        (["blocks.[0-5]", "head"], [*NAMES[2:8], "head.weight"]),
        (["*.gamma"], [n for n in NAMES if n.endswith("gamma")]),
        ([], []),
    ],
)
def test_patterns_freeze_what_they_name_and_all_below(patterns, expected):
    assert match_frozen(NAMES, patterns) == set(expected)


def test_a_pattern_without_a_match_is_refused():
    with pytest.raises(
        UserError, match=r"'block\.3'; there are patch_embed\.proj\.weight, .+head\.weight"
    ) as e:
        match_frozen(NAMES, ["pos_embed", "block.3"])
    assert "\n" not in str(e.value)


def test_freezing_everything_is_refused():
    with pytest.raises(UserError, match="all 13 parameters are frozen"):
        match_frozen(NAMES, ["blocks", "p*", "head.weight"])


def test_a_word_of_the_filter_that_is_in_no_name_is_told():
    names = ["blocks.0.norm1.gamma", "head.weight", "head.bias"]
    check_words(names, ["gamma", "bias"])
    with pytest.raises(UserError, match="no parameter has 'beta' in its name; there are blocks"):
        check_words(names, ["gamma", "beta"])
