"""What the environment says about where this process runs."""

from __future__ import annotations

import os

from src.errors import UserError


def get_device_id() -> int:
    """Number of the card: DEVICE_ID, or 0."""
    text = os.environ.get("DEVICE_ID", "0")
    if not text.isdecimal():
        raise UserError(f"the environment variable DEVICE_ID wants a whole number and holds {text!r}")
    return int(text)
