"""Makes small stand-ins for Google's BiT files: the same names and layouts, seeded values."""

import zlib

import numpy as np

CONV = "standardized_conv2d/kernel"


def bit_arrays(units=(1, 1, 1, 1), width=1, class_num=7, seed=0):
    """{Google's key: float32 array}; kernels are (height, width, in, out)."""
    rng = np.random.default_rng(seed)
    arrays = {}

    def add(key, *shape):
        arrays[f"resnet/{key}"] = rng.standard_normal(shape, dtype=np.float32)

    channels = 64 * width
    add(f"root_block/{CONV}", 7, 7, 3, channels)
    for block, count in enumerate(units, start=1):
        mid = 32 * width * 2**block
        for unit in range(1, count + 1):
            prefix = f"block{block}/unit{unit:02d}"
            if unit == 1:
                add(f"{prefix}/a/proj/{CONV}", 1, 1, channels, 4 * mid)
            for part, (size, before, after) in {
                "a": (1, channels, mid),
                "b": (3, mid, mid),
                "c": (1, mid, 4 * mid),
            }.items():
                add(f"{prefix}/{part}/{CONV}", size, size, before, after)
                add(f"{prefix}/{part}/group_norm/gamma", before)
                add(f"{prefix}/{part}/group_norm/beta", before)
            channels = 4 * mid
    add("group_norm/gamma", channels)
    add("group_norm/beta", channels)
    add("head/conv2d/kernel", 1, 1, channels, class_num)
    add("head/conv2d/bias", class_num)
    return arrays


def golden_arrays(units, width, class_num):
    """{Google's key: float32 array}, each a function of its key, as `golden/bit_logits.json` wants them."""
    arrays = {}
    for key, placeholder in bit_arrays(units, width, class_num).items():
        shape = placeholder.shape
        value = np.random.RandomState(zlib.crc32(key.encode())).standard_normal(shape)
        if key.endswith("gamma"):
            value = 1 + 0.1 * value
        elif key.endswith(("beta", "bias")):
            value = 0.02 * value
        else:
            value = value / np.sqrt(np.prod(shape[:-1]))
        arrays[key] = value.astype(np.float32)
    return arrays


def flip_byte(path, position):
    """Change one byte of a file; negative positions count from the end."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)
