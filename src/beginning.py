"""How a resumed run goes on with the configuration of its beginning, and what may have changed since."""

from __future__ import annotations

from pathlib import Path

from easydict import EasyDict

from src.errors import UserError
from src.model_utils.config import check_given, check_together, config_from_yaml
from src.model_utils.schema import FREE_KEYS, SCHEMA, START_KEYS
from src.resume import Start, find_start
from src.run_folder import is_run_folder

# Keys of which one that is given replaces all.
REPLACING = (
    {"train_image_size", "train_resize_size", "crop_min", "eval_image_size"},
    {"max_epoch", "warmup_epochs", "decay_epochs", "schedule_steps"},
)


def find_beginning(cfg) -> tuple[EasyDict, Start | None]:
    """The configuration of the run and the checkpoint that it goes on from; raises `UserError`.

    A resumed run has the keys of its beginning, but for those that the user has set since.
    """
    start = find_start(cfg.resume, root=cfg.save_checkpoint_path, run_name=cfg.run_name)
    if start:
        cfg = _continued(cfg, start)
    check_given(cfg, ["backbone"])
    return cfg, start


def changed_keys(
    start: Start, config: str, data: str, device_num: int, *, may_change: bool
) -> frozenset[str]:
    """The keys that had other values; raises `UserError` when something has changed and may not.

    Args:
        start: the checkpoint.
        config: text of the configuration now.
        data: a digest of the training images now.
        device_num: number of ranks now.
        may_change: allow it.
    """
    before, now = _values(start, start.config), _values(start, config)
    # the checkpoint may be older than a key
    old = {key: before.get(key, SCHEMA[key].default_value()) for key in sorted(now.keys() - FREE_KEYS)}
    changed = {key: f"{key} {value}, now {now[key]}" for key, value in old.items() if value != now[key]}
    texts = list(changed.values())
    if start.device_num != device_num:
        texts.append(f"devices {start.device_num}, now {device_num}")
    if start.data != data:
        texts.append("other training images")
    if texts and not may_change:
        raise UserError(
            f"{start.path} was trained with {'; '.join(texts)}; resume with what it had, or set "
            "allow_changed_config to true"
        )
    return frozenset(changed)


def _continued(cfg, start: Start) -> EasyDict:
    before = _values(start, start.config)
    replaced = {*cfg.given, *START_KEYS}
    for keys in REPLACING:
        if keys & set(cfg.given):
            replaced |= keys  # what was worked out from the old ones is worked out anew
    kept = {key: value for key, value in before.items() if key not in replaced}
    folder = start.path.absolute().parent
    if is_run_folder(folder) and "save_checkpoint_path" not in cfg.given:
        kept["save_checkpoint_path"] = str(folder.parent)
    for key in ("dataset_path", "eval_path"):
        if kept.get(key) and not Path(kept[key]).exists():
            raise UserError(f"{key} of the run, {kept[key]}, does not exist any more; give --{key} FOLDER")
    cfg = EasyDict({**cfg, **kept})
    check_together(cfg)
    return cfg


def _values(start: Start, config: str) -> dict:
    return config_from_yaml(config, f"{start.path}: configuration")
