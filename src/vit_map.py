"""Google's ViT `.npz` files: which network a file holds, and which of our Parameters each of its arrays is.

Three generations of names are known. Files of 2020, AugReg, SAM and GSAM, of
google-research/vision_transformer:
`Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel`. Those of big_vision end in `_0`,
keep the position embedding at the top and without a row for the class token, and may have a prefix such as
`params/img/`. Its scanned ones have `encoderblock/` with a leading axis for the depth. A file without `cls`
pools by the mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from src.array_io import Mapped, differences
from src.errors import UserError

VIT_ARCHITECTURES = {  # name -> (patch_size, dim, depth, heads, mlp_dim)
    "vit_nano_patch8": (8, 64, 4, 4, 128),  # for tests; not Google's
    "vit_tiny_patch16": (16, 192, 12, 3, 768),
    "vit_small_patch16": (16, 384, 12, 6, 1536),
    "vit_small_patch32": (32, 384, 12, 6, 1536),
    "vit_base_patch8": (8, 768, 12, 12, 3072),
    "vit_base_patch16": (16, 768, 12, 12, 3072),
    "vit_base_patch32": (32, 768, 12, 12, 3072),
    "vit_large_patch16": (16, 1024, 24, 16, 4096),
    "vit_large_patch32": (32, 1024, 24, 16, 4096),
    "vit_huge_patch14": (14, 1280, 32, 16, 5120),
}
LAYER_NORM_EPSILON = 1e-6
_PREFIXES = ("", "opt/target/", "params/img/", "params/")
_EMBEDDING = "embedding/kernel"


@dataclass(frozen=True)
class VitArchitecture:
    """A ViT as its file describes it; `grid` counts the patches of a side, images were square."""

    patch_size: int
    dim: int
    depth: int
    heads: int
    mlp_dim: int
    class_num: int
    grid: int
    pool: str
    pre_logits: bool

    @property
    def name(self) -> str:
        """The zoo's name.

        Raises:
            UserError: the zoo has no such network.
        """
        sizes = (self.patch_size, self.dim, self.depth, self.heads, self.mlp_dim)
        for name, known in VIT_ARCHITECTURES.items():
            if known == sizes:
                return name
        found = "a ViT of patch {}, width {}, depth {}, {} heads and MLP {}".format(*sizes)
        raise UserError(f"{found} is none of the known networks: {', '.join(VIT_ARCHITECTURES)}")

    @property
    def record(self) -> dict:
        """What a file of weights must say so that the network can be built again."""
        side = self.grid * self.patch_size
        return {
            "eval_image_size": [side, side],
            "grid": [self.grid, self.grid],
            "pool": self.pool,
            "pre_logits": self.pre_logits,
        }


def patch_size(name: str) -> int | None:
    """Side of a patch in pixels of the ViT of that name in the zoo; None for other networks."""
    return VIT_ARCHITECTURES[name][0] if name in VIT_ARCHITECTURES else None


def is_vit(shapes: Mapping[str, tuple]) -> bool:
    """Tell whether a file holds a ViT, whole or not."""
    return any(f"{prefix}{_EMBEDDING}" in shapes for prefix in _PREFIXES)


def map_vit(shapes: Mapping[str, tuple]) -> tuple[VitArchitecture, list[Mapped]]:
    """Return the architecture, and every Parameter with its array.

    Raises:
        UserError: the file holds not all of a ViT, or more than that; says what.
    """
    prefix = next(prefix for prefix in _PREFIXES if f"{prefix}{_EMBEDDING}" in shapes)
    shapes = {key[len(prefix) :]: shape for key, shape in shapes.items() if key.startswith(prefix)}
    names = _Names(shapes)
    try:
        architecture = _infer(shapes, names)
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(f"wanted a ViT file, but it lacks or misshapes {error}") from None
    architecture.name  # noqa: B018, refuses a depth of billions before its Parameters are listed
    mapped, wanted = _params(architecture, names)
    problem = differences(wanted, shapes)
    if problem:
        raise UserError(
            f"wanted a ViT of width {architecture.dim} and depth {architecture.depth}, but {problem}"
        )
    if names.scanned:
        mapped.sort(key=lambda param: param.key)  # what is in one array comes together
    return architecture, [param._replace(key=prefix + param.key) for param in mapped]


class _Names:
    """What the generations of files call the same things."""

    def __init__(self, shapes: Mapping[str, tuple]):
        self.scanned = any(key.startswith("Transformer/encoderblock/") for key in shapes)
        self.big_vision = "pos_embedding" in shapes
        self.position = "pos_embedding" if self.big_vision else "Transformer/posembed_input/pos_embedding"
        attention, mlp, norm = (0, 0, 1) if self.big_vision else (1, 3, 2)
        self.attention = f"MultiHeadDotProductAttention_{attention}"
        self.mlp = f"MlpBlock_{mlp}"
        self.norms = ("LayerNorm_0", f"LayerNorm_{norm}")

    def block(self, index: int) -> str:
        return "Transformer/encoderblock" if self.scanned else f"Transformer/encoderblock_{index}"


def _infer(shapes: Mapping[str, tuple], names: _Names) -> VitArchitecture:
    patch, _, _, dim = shapes[_EMBEDDING]
    query = shapes[f"{names.block(0)}/{names.attention}/query/kernel"]
    hidden = shapes[f"{names.block(0)}/{names.mlp}/Dense_0/kernel"]
    blocks = {
        match[1] for match in (re.match(r"Transformer/encoderblock_(\d+)/", key) for key in shapes) if match
    }
    pool = "token" if "cls" in shapes else "mean"
    tokens = shapes[names.position][1] - (pool == "token" and not names.big_vision)
    grid = math.isqrt(tokens)
    if grid * grid != tokens:
        raise ValueError(f"{names.position}: {tokens} patches make no square")
    return VitArchitecture(
        patch_size=patch,
        dim=dim,
        depth=query[0] if names.scanned else len(blocks),
        heads=query[-2],
        mlp_dim=hidden[-1],
        class_num=shapes["head/kernel"][-1],
        grid=grid,
        pool=pool,
        pre_logits="pre_logits/kernel" in shapes,
    )


def _params(a: VitArchitecture, names: _Names) -> tuple[list[Mapped], dict[str, tuple]]:
    """List every Parameter with its array, and every array that the file must hold with its shape."""
    mapped, wanted = [], {}

    def put(name, shape, key, file_shape, turn=lambda array: array, block=None):
        if block is not None and names.scanned:
            file_shape = (a.depth, *file_shape)
            inner, turn = turn, lambda array: inner(array[block])
        wanted[key] = file_shape
        mapped.append(Mapped(name, shape, key, turn))

    def dense(name, key, inputs, outputs, block=None):
        rows, columns = math.prod(inputs), math.prod(outputs)
        kernel = lambda array: array.reshape(rows, columns).T  # noqa: E731, (inputs, outputs) -> (D, C)
        put(f"{name}.weight", (columns, rows), f"{key}/kernel", (*inputs, *outputs), kernel, block)
        put(f"{name}.bias", (columns,), f"{key}/bias", outputs, lambda array: array.reshape(columns), block)

    def norm(name, key, block=None):
        put(f"{name}.gamma", (a.dim,), f"{key}/scale", (a.dim,), block=block)
        put(f"{name}.beta", (a.dim,), f"{key}/bias", (a.dim,), block=block)

    patch = (a.patch_size, a.patch_size)
    hwio_to_oihw = lambda array: array.transpose(3, 2, 0, 1)  # noqa: E731
    put("patch_embed.proj.weight", (a.dim, 3, *patch), _EMBEDDING, (*patch, 3, a.dim), hwio_to_oihw)
    put("patch_embed.proj.bias", (a.dim,), "embedding/bias", (a.dim,))
    rows, token = a.grid**2, a.pool == "token"
    if token:
        put("cls_token", (1, 1, a.dim), "cls", (1, 1, a.dim))
    add_row = (lambda array: np.pad(array, ((0, 0), (1, 0), (0, 0)))) if token and names.big_vision else None
    file_rows = rows + (token and add_row is None)
    position = (1, rows + token, a.dim)
    put("pos_embed", position, names.position, (1, file_rows, a.dim), add_row or (lambda array: array))
    split = (a.heads, a.dim // a.heads)
    for i in range(a.depth):
        ours, theirs = f"blocks.{i}", names.block(i)
        for number, layer in enumerate(names.norms, start=1):
            norm(f"{ours}.norm{number}", f"{theirs}/{layer}", i)
        for letter in ("query", "key", "value"):
            dense(f"{ours}.attn.{letter[0]}", f"{theirs}/{names.attention}/{letter}", (a.dim,), split, i)
        dense(f"{ours}.attn.proj", f"{theirs}/{names.attention}/out", split, (a.dim,), i)
        dense(f"{ours}.mlp.fc1", f"{theirs}/{names.mlp}/Dense_0", (a.dim,), (a.mlp_dim,), i)
        dense(f"{ours}.mlp.fc2", f"{theirs}/{names.mlp}/Dense_1", (a.mlp_dim,), (a.dim,), i)
    norm("norm", "Transformer/encoder_norm")
    if a.pre_logits:
        dense("pre_logits", "pre_logits", (a.dim,), (a.dim,))
    dense("head", "head", (a.dim,), (a.class_num,))
    return mapped, wanted


def resize_position(position: np.ndarray, grid: tuple[int, int], new_grid: tuple[int, int]) -> np.ndarray:
    """Resize a position embedding, as `interpolate_posembed` of google-research/vision_transformer does.

    Bilinear with aligned corners, like `scipy.ndimage.zoom` of order 1. Rows before the grid (the class
    token's) stay as they are; a grid of the same size is returned unchanged.

    Args:
        position: float32, shape (1, tokens, D); the last `grid[0] * grid[1]` tokens are the patches.
        grid: (rows, columns) of patches.
        new_grid: the same, wanted.

    Returns:
        float32, shape (1, tokens - grid area + new_grid area, D).
    """
    if tuple(grid) == tuple(new_grid):
        return position
    first = position.shape[1] - grid[0] * grid[1]
    patches = position[0, first:].astype(np.float64).reshape(*grid, -1)
    for axis, (old, new) in enumerate(zip(grid, new_grid)):
        place = np.linspace(0, old - 1, new)
        low = np.minimum(place.astype(int), max(old - 2, 0))
        high = np.minimum(low + 1, old - 1)
        share = (place - low).reshape([-1 if axis == a else 1 for a in range(3)])
        patches = patches.take(low, axis) * (1 - share) + patches.take(high, axis) * share
    resized = patches.reshape(-1, position.shape[2]).astype(position.dtype)
    return np.concatenate([position[:, :first], resized[None]], axis=1)
