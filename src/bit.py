"""BiT ResNet-v2 (arXiv:1912.11370): pre-activation, GroupNorm, standardised convolutions.

Follows the released weights as google-research/big_transfer `bit_pytorch/models.py` reads them: symmetric
padding, the stride on the 3x3 convolution, the projection after the first norm and ReLU, zeros (not minus
infinity) around the root pool, a zero-initialised 1x1 convolution as head. Parameter names are those of the
public MindSpore port (`body.block1.unit01.gn1.gamma`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from mindspore import Parameter, nn, ops
from mindspore.common.initializer import HeNormal, initializer

from src import bit_operators
from src.float32_cell import Float32Cell
from src.npz_map import GROUP_NORM_EPSILON, GROUPS, STANDARDISE_EPSILON


class StdConv2d(Float32Cell):
    """Convolution with standardised filters and symmetric zero padding, without bias.

    Args:
        in_channels (int): channels of the input, C.
        out_channels (int): channels of the output, D.
        kernel_size (int): side of the square kernel, odd.
        stride (int): stride in both directions.

    Inputs:
        x (Tensor): shape (N, C, H, W).

    Outputs:
        Tensor, shape (N, D, ceil(H / stride), ceil(W / stride)), in the type of the amp level.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1):
        super().__init__()
        shape = (out_channels, in_channels, kernel_size, kernel_size)
        self.weight = Parameter(initializer(HeNormal(nonlinearity="linear"), shape), name="weight")
        self.rows = (out_channels, in_channels * kernel_size**2)
        # None: the weight is standardised already
        self.standardise = bit_operators.Standardise(self.rows[1], STANDARDISE_EPSILON)
        self.conv = bit_operators.Convolution(in_channels, out_channels, kernel_size, stride)

    def construct(self, x):
        weight = self.weight
        if self.standardise is not None:
            weight = self.standardise(weight.reshape(self.rows)).reshape(weight.shape)
        return self.conv(ops.cast(x, self.compute_dtype), ops.cast(weight, self.compute_dtype))


class GroupNormRelu(Float32Cell):
    """GroupNorm over 32 groups with epsilon 1e-5 (arXiv:1803.08494), then ReLU, computed in float32.

    Args:
        channels (int): channels of the input, C, a multiple of 32.

    Inputs:
        x (Tensor): shape (N, C, H, W).

    Outputs:
        Tensor, shape (N, C, H, W), in the type of the amp level.
    """

    def __init__(self, channels: int):
        super().__init__()
        if channels % GROUPS:
            raise ValueError(
                f"GroupNorm wants a multiple of {GROUPS} channels and got {channels}; use a whole width"
            )
        self.gamma = Parameter(initializer("ones", (channels,)), name="gamma")
        self.beta = Parameter(initializer("zeros", (channels,)), name="beta")
        self.norm = bit_operators.GroupNormRelu(GROUPS, GROUP_NORM_EPSILON)

    def construct(self, x):
        return self.norm(x, self.gamma, self.beta)


class PreActBottleneck(nn.Cell):
    """Pre-activation bottleneck: GN, ReLU, 1x1; GN, ReLU, 3x3 (stride); GN, ReLU, 1x1; plus the shortcut.

    Args:
        in_channels (int): channels of the input, C.
        mid_channels (int): channels of the 3x3 convolution; the output has D = 4 * mid_channels.
        stride (int): stride of the 3x3 convolution and of the projection.

    Inputs:
        x (Tensor): shape (N, C, H, W).

    Outputs:
        Tensor, shape (N, D, ceil(H / stride), ceil(W / stride)).
    """

    def __init__(self, in_channels: int, mid_channels: int, stride: int):
        super().__init__()
        out_channels = 4 * mid_channels
        self.gn1 = GroupNormRelu(in_channels)
        self.conv1 = StdConv2d(in_channels, mid_channels, kernel_size=1)
        self.gn2 = GroupNormRelu(mid_channels)
        self.conv2 = StdConv2d(mid_channels, mid_channels, kernel_size=3, stride=stride)
        self.gn3 = GroupNormRelu(mid_channels)
        self.conv3 = StdConv2d(mid_channels, out_channels, kernel_size=1)
        self.downsample = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = StdConv2d(in_channels, out_channels, kernel_size=1, stride=stride)

    def construct(self, x):
        out = self.gn1(x)
        shortcut = x
        if self.downsample is not None:
            shortcut = self.downsample(out)  # (N, C, H, W) -> (N, D, H/s, W/s)
        out = self.conv1(out)
        out = self.conv2(self.gn2(out))
        out = self.conv3(self.gn3(out))
        return out + shortcut


class Root(nn.Cell):
    """7x7 stride-2 convolution, one pixel of zeros, 3x3 stride-2 max pool without further padding.

    The zeros win over negative activations, since no ReLU stands before the pool; the released weights expect
    it.

    Inputs:
        x (Tensor): shape (N, 3, H, W).

    Outputs:
        Tensor, shape (N, C, ceil(H / 4), ceil(W / 4)).
    """

    def __init__(self, out_channels: int):
        super().__init__()
        self.conv = StdConv2d(3, out_channels, kernel_size=7, stride=2)
        self.pool = bit_operators.ZeroPadMaxPool()

    def construct(self, x):
        return self.pool(self.conv(x))  # (N, 3, H, W) -> (N, C, ceil(H/2), ceil(W/2)) -> half of these


class Head(nn.Cell):
    """GN, ReLU, global average pool, 1x1 convolution with zero weights and biases.

    Args:
        in_channels (int): channels of the input, C.
        num_classes (int): number of logits, K.

    Inputs:
        x (Tensor): shape (N, C, H, W).

    Outputs:
        Tensor, logits of shape (N, K).
    """

    def __init__(self, in_channels: int, num_classes: int):
        super().__init__()
        self.gn = GroupNormRelu(in_channels)
        self.conv = nn.Conv2d(
            in_channels=in_channels,
            out_channels=num_classes,
            kernel_size=1,
            has_bias=True,
            weight_init="zeros",
            bias_init="zeros",
        )

    def construct(self, x):
        x = self.gn(x).mean((2, 3), keep_dims=True)  # (N, C, H, W) -> (N, C, 1, 1)
        return self.conv(x).flatten(start_dim=1)  # (N, K, 1, 1) -> (N, K)


class BiT(nn.Cell):
    """Big Transfer ResNet-v2.

    Args:
        units (Sequence[int]): bottlenecks of the four blocks, (3, 4, 6, 3) for ResNet-50.
        width (int): multiplier of all channels.
        num_classes (int): number of logits, K.

    Inputs:
        x (Tensor): images, shape (N, 3, H, W), scaled to [-1, 1]; any height and width.

    Outputs:
        Tensor, logits of shape (N, K).
    """

    def __init__(self, *, units: Sequence[int], width: int, num_classes: int):
        super().__init__()
        channels = 64 * width
        self.root = Root(channels)
        blocks = OrderedDict()
        for index, count in enumerate(units):
            mid = 64 * width * 2**index
            block = OrderedDict()
            for unit in range(count):
                stride = 2 if unit == 0 and index > 0 else 1
                block[f"unit{unit + 1:02d}"] = PreActBottleneck(channels, mid, stride)
                channels = 4 * mid
            blocks[f"block{index + 1}"] = nn.SequentialCell(block)
        self.body = nn.SequentialCell(blocks)
        self.head = Head(channels, num_classes)

    def construct(self, x):
        x = self.body(self.root(x))  # (N, 3, H, W) -> (N, 2048 * width, ceil(H/32), ceil(W/32))
        return self.head(x)  # -> (N, K)
