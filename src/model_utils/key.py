"""A key of the configuration: its type, its default, and what limits its values.

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
        return self.default in (None, "", ())

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
