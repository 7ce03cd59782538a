"""Which parameters are decayed, which are frozen, and how fast each layer learns: rules on names alone.

The names are those of `src/bit.py` and `src/vit.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from src.errors import UserError

EMBEDDINGS = ("cls_token", "pos_embed")
FIRST = ("root", "patch_embed", *EMBEDDINGS)
LAST = ("norm", "pre_logits", "head")
UNIT = re.compile(r"(?:blocks\.|body\.block(\d+)\.unit)(\d+)\.")


def is_decayed(name: str, ndim: int, no_decay: Iterable[str] = ()) -> bool:
    """Whether weight decay applies: to what has two or more dimensions, but for the embeddings of ViT.

    Args:
        name: of the parameter.
        ndim: its number of dimensions.
        no_decay: words; a name that contains one of them is not decayed either.
    """
    return is_kernel(name, ndim) and not any(word in name for word in no_decay if word)


def is_kernel(name: str, ndim: int) -> bool:
    """Whether a parameter has two or more dimensions and is no embedding of ViT."""
    return ndim > 1 and name not in EMBEDDINGS


def check_words(names: Sequence[str], words: Iterable[str]) -> None:
    """Raise `UserError` if a word of `no_weight_decay_filter` is in no parameter's name."""
    for word in words:
        if not any(word in name for name in names):
            raise UserError(
                f"no_weight_decay_filter: no parameter has {word!r} in its name; there are {_some(names)}"
            )


def layer_scales(names: Sequence[str], decay: float) -> dict[str, float]:
    """Factors of the rate for layer-wise decay (arXiv:2003.10555): `decay ** (last - layer)`.

    Layer 0 is what comes before the encoder blocks of ViT or the units of BiT, these are 1, 2, ..., and the
    final norm, `pre_logits` and the head are the last layer, whose factor is 1.

    Args:
        names: of all parameters of the network, the frozen ones too, since the units are counted by them.
        decay: above 0 and at most 1, which changes nothing.

    Raises:
        UserError: a decay out of its range.
        ValueError: a name that belongs to no layer.
    """
    if not 0 < decay <= 1:
        raise UserError(f"the layer-wise decay of the rate must be above 0 and at most 1, not {decay}")
    positions = {name: _position(name) for name in names}
    order = sorted({(0,), (2,), *positions.values()})
    return {name: decay ** (len(order) - 1 - order.index(at)) for name, at in positions.items()}


def match_frozen(names: Sequence[str], patterns: Iterable[str]) -> set[str]:
    """Return the names that the patterns freeze.

    Args:
        names: of all parameters of the network.
        patterns: as of files in a shell: `*`, `?`, `[0-5]`, where `*` takes dots, too. A pattern stands for
            the parameter of that name and for all below it: `blocks.3` is `blocks.3.*` and not `blocks.30.*`.

    Raises:
        UserError: a pattern that matches nothing, or nothing is left to train.
    """
    frozen = set()
    for pattern in patterns:
        found = {name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")}
        if not found:
            raise UserError(f"no parameter to freeze is called {pattern!r}; there are {_some(names)}")
        frozen |= found
    if names and frozen.issuperset(names):
        raise UserError(f"all {len(names)} parameters are frozen, {_some(names)}; leave some to train")
    return frozen


def _position(name: str) -> tuple[int, ...]:
    """What sorts the layers."""
    unit = UNIT.match(name)
    if unit:
        return (1, *(int(number) for number in unit.groups(default="0")))
    part = name.split(".")[0]
    if part not in FIRST + LAST:
        raise ValueError(f"{name} belongs to no layer of BiT or ViT")
    return (0,) if part in FIRST else (2,)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:: max(1, len(names) // 4)]) + " and so on"
