"""Makes seeded stand-ins for Google's ViT files of 2020, and fills a network with them."""

import zlib

import mindspore as ms
import numpy as np


def fan_in(key, shape):
    """Inputs of one output unit; the kernels of query, key and value are (D, heads, head width)."""
    if "MultiHeadDotProductAttention" in key and not key.endswith("out/kernel"):
        return shape[0]
    return int(np.prod(shape[:-1]))


def seeded(key, shape):
    value = np.random.RandomState(zlib.crc32(key.encode())).standard_normal(shape)
    leaf = key.rsplit("/", 1)[-1]
    if leaf == "scale":
        return 1 + 0.1 * value
    if leaf == "bias":
        return 0.02 * value
    if leaf in ("cls", "pos_embedding"):
        return 0.2 * value
    return value / np.sqrt(fan_in(key, shape))


def fill_golden(net, *, dim, heads, depth):
    """Set every Parameter of a ViT to the golden value of its key; each must be asked for once."""
    params = {param.name: param for param in net.get_parameters()}

    def put(name, key, shape, turn=lambda a: a):
        param = params.pop(name)
        value = np.ascontiguousarray(turn(seeded(key, shape)).reshape(param.shape), np.float32)
        param.set_data(ms.Tensor(value))

    def dense(name, key, inputs, outputs):
        put(
            f"{name}.weight", f"{key}/kernel", (*inputs, *outputs), lambda a: a.reshape(np.prod(inputs), -1).T
        )
        put(f"{name}.bias", f"{key}/bias", outputs)

    def norm(name, key):
        put(f"{name}.gamma", f"{key}/scale", (dim,))
        put(f"{name}.beta", f"{key}/bias", (dim,))

    patch = net.patch_embed.proj.weight.shape[2]
    kernel = (patch, patch, 3, dim)
    put("patch_embed.proj.weight", "embedding/kernel", kernel, lambda a: a.transpose(3, 2, 0, 1))
    put("patch_embed.proj.bias", "embedding/bias", (dim,))
    put("cls_token", "cls", (1, 1, dim))
    put("pos_embed", "Transformer/posembed_input/pos_embedding", net.pos_embed.shape)
    split = (heads, dim // heads)
    for i in range(depth):
        block, key = f"blocks.{i}", f"Transformer/encoderblock_{i}"
        norm(f"{block}.norm1", f"{key}/LayerNorm_0")
        norm(f"{block}.norm2", f"{key}/LayerNorm_2")
        attention = f"{key}/MultiHeadDotProductAttention_1"
        for ours, theirs in (("q", "query"), ("k", "key"), ("v", "value")):
            dense(f"{block}.attn.{ours}", f"{attention}/{theirs}", (dim,), split)
        dense(f"{block}.attn.proj", f"{attention}/out", split, (dim,))
        hidden = net.blocks[i].mlp.fc1.weight.shape[0]
        dense(f"{block}.mlp.fc1", f"{key}/MlpBlock_3/Dense_0", (dim,), (hidden,))
        dense(f"{block}.mlp.fc2", f"{key}/MlpBlock_3/Dense_1", (hidden,), (dim,))
    norm("norm", "Transformer/encoder_norm")
    if net.pre_logits is not None:
        dense("pre_logits", "pre_logits", (dim,), (dim,))
    dense("head", "head", (dim,), (net.head.weight.shape[0],))
    assert not params
