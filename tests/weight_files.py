"""Arrays, writers and readers that the tests of weight files share."""

import json

import numpy as np
import pytest
from mindspore.train import serialization

from src.array_io import Weight
from src.errors import UserError
from src.weight_file import open_weights, write_weights

RNG = np.random.default_rng(3)
ARRAYS = {
    "conv.weight": RNG.standard_normal((5, 2, 3, 1), dtype=np.float32),
    "head.bias": RNG.standard_normal(7, dtype=np.float32),
    "step": np.array(-5, np.int64),
    "empty": np.zeros((0, 4), np.float32),
    "mask": np.array([[True, False, True]]),
}
RECORD = {"network": "bit_tiny", "class_num": 7, "image_mean": [127.5, 1, 2], "classes": ["猫", 'a "b"']}
both = pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])


def weights(arrays):
    return [Weight(name, a.shape, lambda a=a: a, a.dtype.name) for name, a in arrays.items()]


def written(path, arrays=ARRAYS, record=RECORD):
    write_weights(path, weights(arrays), record)
    return path


def read(path):
    with open_weights(path) as file:
        return dict(file), file.record


def assert_same(found, wanted):
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, strict=True)


def refused(path):
    with pytest.raises(UserError) as caught:
        read(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def value(tag, dims=(2,), kind="Float32", content=b"\0" * 8):
    """One record of a .ckpt as the protobuf library writes it."""
    message = serialization.Checkpoint()
    entry = message.value.add()
    entry.tag = tag
    entry.tensor.dims.extend(dims)
    entry.tensor.tensor_type = kind
    entry.tensor.tensor_content = content
    return message.SerializeToString()


def safetensors(header, data=b"\0" * 8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data
