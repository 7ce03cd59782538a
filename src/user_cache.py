"""The folder of the user's cache: what is made once a machine and can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(kind: str) -> Path:
    """Return the folder for one kind of things, absolute; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).resolve() / "mindspore_bit_vit" / kind
