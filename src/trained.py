"""What a file of weights says of its network, and the configuration with it: for evaluation and export."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from mindspore import nn

from src.checkpoint import load_pretrained, read_record
from src.class_map import CLASS_MAP, check_class_order, read_class_map
from src.errors import UserError
from src.network import arguments_of, canonical_name, get_network
from src.npz_map import GOOGLE_NORMALISATION
from src.recipe import INTERPOLATION, eval_size
from src.user_files import is_regular

AGREED = ("pool", "gelu")  # arguments of the network that the configuration may name, too


@dataclass(frozen=True)
class Trained:
    """A network with its weights, and how its input is made. Sizes are (height, width) in pixels."""

    path: Path
    name: str
    record: dict
    class_names: tuple[str, ...] | None  # None when nobody knows them
    arguments: dict = field(repr=False)  # of `get_network`

    def class_num(self, cfg) -> int | None:
        """Classes by the configuration or the record; None when neither says."""
        return self.agreed(cfg, "class_num")

    def preprocessing(self, cfg, image_size: tuple[int, int] | None) -> dict:
        """The keys of the configuration that say how evaluation makes the input, filled in.

        Args:
            cfg: the configuration.
            image_size: (height, width) of a typical image, None when there is none.
        """
        ratio = (
            self.record.get("eval_crop_ratio", 0.0) if cfg.eval_crop_ratio is None else cfg.eval_crop_ratio
        )
        return {
            "eval_image_size": eval_size(cfg, self.record, self.name, image_size),
            "eval_crop_ratio": ratio,
            "interpolation": self.agreed(cfg, "interpolation") or INTERPOLATION,
            **{key: tuple(self.agreed(cfg, key) or family) for key, family in GOOGLE_NORMALISATION.items()},
        }

    def network(self, *, class_num: int, image_size: tuple[int, int]) -> nn.Cell:
        """Build the network and fill it."""
        network = get_network(self.name, num_classes=class_num, image_size=image_size, **self.arguments)
        load_pretrained(network, self.path)
        return network

    def agreed(self, cfg, key: str):
        """What the configuration or the record says of `key`. Raises `UserError` when they differ."""
        return _agreed(key, cfg[key], self.record.get(key), self.path)


def open_trained(cfg) -> Trained:
    """Read the record of the weights of `checkpoint_path`; the configuration must not deny it.

    Raises:
        UserError: the file is missing or damaged, is of another network than `backbone`, or names none.
    """
    if not cfg.checkpoint_path:
        raise UserError("checkpoint_path is not set; give the file of the weights: --checkpoint_path FILE")
    path = Path(cfg.checkpoint_path)
    record = read_record(path)
    wanted = canonical_name(cfg.backbone) if cfg.backbone else None
    name = _agreed("backbone", wanted, record.get("network"), path)
    if name is None:
        raise UserError(f"{path} does not say which network it is; set backbone")
    arguments = arguments_of(record)
    for key in AGREED:
        if cfg[key] is not None:
            arguments[key] = _agreed(key, cfg[key], record.get(key), path)
    return Trained(path, name, record, _class_names(path, record), arguments)


def _agreed(key: str, wanted, known, path: Path):
    """What the configuration and the weights say of `key`, when one is silent or both say the same."""
    if wanted is None or known is None:
        return known if wanted is None else wanted
    if isinstance(wanted, (str, int)):
        same = wanted == known
    else:
        same = np.shape(wanted) == np.shape(known) and np.allclose(wanted, known)
    if not same:
        raise UserError(f"{key} is {wanted}, but {path} was made with {known}; leave {key} out")
    return wanted


def _class_names(path: Path, record: dict) -> tuple[str, ...] | None:
    """The classes that the weights were trained on: by their record, and by the class map beside them."""
    inside = record.get("class_names")
    beside = path.with_name(CLASS_MAP)
    if not is_regular(beside):
        return None if inside is None else tuple(inside)
    names = read_class_map(beside)
    if inside is not None:
        check_class_order(inside, names)
    return names
