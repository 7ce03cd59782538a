"""What the configuration may hold: one literal table of keys, a row each.

A key whose default is null or '' may be set to null or '', which gives that default back; no other key may.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from src.model_utils.values import TYPES, Raw, abbreviated, absolute_path, convert

_SIGNS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True)
class Key:
    """One key: its type (a name in `values.TYPES`), its default, and what limits its values."""

    name: str
    type: str
    default: Any
    help: str
    bounds: str = ""  # such as ">= 0, < 1"; holds for each number of a list
    choices: tuple[str, ...] = ()  # compared without case; the spelling here is the result

    @property
    def nullable(self) -> bool:
        """Whether null (or empty text) may be given."""
        return self.default in (None, "")

    @property
    def accepts(self) -> str:
        """The values that are accepted, in words."""
        words = "one of " + ", ".join(self.choices) if self.choices else TYPES[self.type][0]
        return f"{words} {self.bounds}".strip()

    def default_value(self) -> Any:
        """Return the default as `parse` would give it: a relative path becomes absolute."""
        return absolute_path(self.default) if self.type == "path" and self.default else self.default

    def parse(self, raw: Raw) -> Any:
        """Turn text, or a list of texts, into the key's value.

        Raises:
            ValueError: says what was wanted and what came.
        """
        null = isinstance(raw, str) and raw.strip().lower() in ("", "~", "null")
        if null and self.nullable:
            return self.default
        try:
            if null:
                raise ValueError
            return self._limited(convert(self.type, raw))
        except ValueError as error:
            wanted = self.accepts + (", or null" if self.nullable else "")
            reason = f" ({error})" if str(error) else ""
            raise ValueError(f"expected {wanted}; got {abbreviated(raw)}{reason}") from None

    def _limited(self, value: Any) -> Any:
        if self.choices:
            spelled = [choice for choice in self.choices if choice.lower() == value.strip().lower()]
            if not spelled:
                raise ValueError
            return spelled[0]
        for bound in filter(None, self.bounds.split(", ")):
            sign, limit = bound.split()
            numbers = value if isinstance(value, (list, tuple)) else [value]
            if not all(_SIGNS[sign](number, float(limit)) for number in numbers):
                raise ValueError
        return value


GROUPS: dict[str, tuple[Key, ...]] = {
    "run": (
        Key("device_target", "str", None, "where to compute; null: what the installed MindSpore defaults to",
            choices=("CPU", "GPU", "Ascend")),
        Key("device_id", "int", None, "number of the device; null: environment DEVICE_ID, else 0", ">= 0"),
        Key("seed", "int", 1, "start of every random sequence of the run", ">= 0"),
        Key("run_name", "name", "", "subfolder of save_checkpoint_path that keeps this run apart"),
        Key("save_checkpoint_path", "path", "./outputs", "folder for checkpoints, log and configuration"),
        Key("log_every", "int", 10, "steps per log line, at the least", ">= 1"),
    ),
    "data": (
        Key("dataset", "str", "auto", "layout of the data; auto: recognised from the files",
            choices=("auto", "imagefolder", "cifar10", "cifar100")),
        Key("dataset_path", "path", "", "folder of the training data"),
        Key("eval_path", "path", "", "folder of the evaluation data"),
        Key("cifar100_label", "str", "fine", "the 100 fine or 20 coarse labels", choices=("fine", "coarse")),
        Key("class_num", "int", None, "classes; null: as many as in the data or the checkpoint", ">= 1"),
        Key("allow_unused_classes", "bool", False, "training: let class_num exceed the classes of the data"),
        Key("examples_per_class", "int", None, "training images drawn from each class; null: all", ">= 1"),
        Key("examples_per_class_seed", "int", 0, "which images examples_per_class draws", ">= 0"),
        Key("on_bad_image", "str", "stop", "an unreadable image ends the run or is left out",
            choices=("stop", "skip")),
        Key("train_image_size", "size", None, "training crop in pixels; null: BiT-HyperRule", ">= 1"),
        Key("train_resize_size", "size", None, "pixels before the crop; null: BiT-HyperRule", ">= 1"),
        Key("eval_image_size", "size", None, "evaluation image in pixels; null: as in training", ">= 1"),
        Key("interpolation", "str", None, "filter of every resize; null: the checkpoint's, else BILINEAR",
            choices=("BILINEAR", "BICUBIC", "NEAREST", "LANCZOS")),
        Key("image_mean", "triple", None, "RGB mean in 0..255; null: the checkpoint's, else the network's"),
        Key("image_std", "triple", None, "RGB deviation in 0..255; null: as for image_mean", "> 0"),
        Key("hflip", "float", 0.5, "probability of a left-right flip in training", ">= 0, <= 1"),
        Key("batch_size", "int", 512, "training images per device and step", ">= 1"),
        Key("eval_batch_size", "int", None, "as batch_size; null: batch_size / batch_split", ">= 1"),
        Key("train_num_workers", "int", None, "threads that read training images; null: one a core", ">= 1"),
        Key("eval_num_workers", "int", None, "threads that read evaluation images; null: one a core", ">= 1"),
    ),
    "network": (
        Key("backbone", "str", "", "network of the zoo, such as bit_r50x1 or BiT-M-R50x1"),
        Key("pretrained", "path", "", ".npz, .ckpt or .safetensors, or a folder with <backbone>.npz"),
        Key("replace_head", "bool", True, "start from a zero head instead of the pretrained one"),
        Key("amp_level", "str", "O0", "mixed precision", choices=("O0", "O1", "O2", "O3", "auto")),
    ),
    "schedule": (
        Key("lr_max", "float", 0.003, "learning rate after warm-up", "> 0"),
        Key("schedule_steps", "steps", None, "steps: warm-up end, decays, end; null: BiT-HyperRule", ">= 0"),
        Key("batch_split", "int", 1, "parts of a batch whose gradients are added up to save memory", ">= 1"),
    ),
    "optimizer": (
        Key("opt", "str", "momentum", "optimizer", choices=("momentum",)),
        Key("momentum", "float", 0.9, "share of the last update that is kept", ">= 0, < 1"),
        Key("weight_decay", "float", 0.0, "L2 penalty on the weights", ">= 0"),
    ),
    "loss": (
        Key("loss_scale", "float", 1024.0, "keeps float16 gradients from vanishing; unused at O0",
            "> 0"),
        Key("mixup", "float", None, "alpha of Beta(alpha, alpha), 0 is off; null: BiT-HyperRule", ">= 0"),
    ),
    "evaluation": (
        Key("checkpoint_path", "path", "", "weights that eval.py evaluates"),
        Key("eval_every", "int", None, "steps between evaluations; 0: only after the last; null: ten a run",
            ">= 0"),
    ),
    "checkpoint": (
        Key("save_checkpoint", "bool", True, "write checkpoints while training"),
    ),
}

CONFIG_PATH = Key("config_path", "path", "", "YAML file of the keys below; the command line wins over it")
SCHEMA: dict[str, Key] = {key.name: key for keys in GROUPS.values() for key in keys}
