"""Makes seeded stand-ins for Google's ViT files, in each of their three generations of names."""

import zlib

import numpy as np

MHA = "MultiHeadDotProductAttention"


def shapes_of(patch, dim, depth, heads, mlp_dim, class_num, *, grid, pre_logits=False, token=True):
    """{key: shape} of a file of 2020."""
    shapes = {"embedding/kernel": (patch, patch, 3, dim), "embedding/bias": (dim,)}
    if token:
        shapes["cls"] = (1, 1, dim)
    shapes["Transformer/posembed_input/pos_embedding"] = (1, grid * grid + token, dim)

    def dense(key, inputs, outputs):
        shapes[f"{key}/kernel"], shapes[f"{key}/bias"] = (*inputs, *outputs), outputs

    def norm(key):
        shapes[f"{key}/scale"] = shapes[f"{key}/bias"] = (dim,)

    for i in range(depth):
        block = f"Transformer/encoderblock_{i}"
        norm(f"{block}/LayerNorm_0")
        norm(f"{block}/LayerNorm_2")
        for name in ("query", "key", "value"):
            dense(f"{block}/{MHA}_1/{name}", (dim,), (heads, dim // heads))
        dense(f"{block}/{MHA}_1/out", (heads, dim // heads), (dim,))
        dense(f"{block}/MlpBlock_3/Dense_0", (dim,), (mlp_dim,))
        dense(f"{block}/MlpBlock_3/Dense_1", (mlp_dim,), (dim,))
    norm("Transformer/encoder_norm")
    if pre_logits:
        dense("pre_logits", (dim,), (dim,))
    dense("head", (dim,), (class_num,))
    return shapes


def golden_arrays(*sizes, **options):
    """{key: float32 array}, each a function of its key, as `golden/vit_logits.json` wants them."""
    return {key: _seeded(key, shape) for key, shape in shapes_of(*sizes, **options).items()}


def _seeded(key, shape):
    value = np.random.RandomState(zlib.crc32(key.encode())).standard_normal(shape)
    leaf = key.rsplit("/", 1)[-1]
    if leaf == "scale":
        value = 1 + 0.1 * value
    elif leaf == "bias":
        value = 0.02 * value
    elif leaf in ("cls", "pos_embedding"):
        value = 0.2 * value
    else:  # the kernels of query, key and value have one axis of inputs
        inputs = shape[:1] if MHA in key and not key.endswith("out/kernel") else shape[:-1]
        value = value / np.sqrt(np.prod(inputs))
    return value.astype(np.float32)


def big_vision(arrays, prefix="", *, scanned=False):
    """The same network under big_vision's names; its position embedding has no row for the class token."""
    renamed = {}
    for key, value in arrays.items():
        for old, new in (
            (f"{MHA}_1", f"{MHA}_0"),
            ("MlpBlock_3", "MlpBlock_0"),
            ("LayerNorm_2", "LayerNorm_1"),
        ):
            key = key.replace(old, new)
        renamed[key] = value
    position = renamed.pop("Transformer/posembed_input/pos_embedding")
    renamed["pos_embedding"] = position[:, 1:] if "cls" in renamed else position
    if scanned:
        blocks = [key for key in renamed if "encoderblock_" in key]
        depth = 1 + max(int(key.split("encoderblock_")[1].split("/")[0]) for key in blocks)
        for key in [key for key in blocks if "encoderblock_0/" in key]:
            parts = [renamed.pop(key.replace("encoderblock_0/", f"encoderblock_{i}/")) for i in range(depth)]
            renamed[key.replace("encoderblock_0/", "encoderblock/")] = np.stack(parts)
    return {prefix + key: value for key, value in renamed.items()}
