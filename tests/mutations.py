"""Seeded damage to files: of bytes for any format, of values for JSON and YAML."""

from __future__ import annotations

import json
import random

HUGE = (  # as length fields and sizes have them: little and big end first, and protobuf's varint
    *((2**bits - 1).to_bytes(bits // 8, "little") for bits in (16, 32, 64)),
    *((2 ** (bits - 1)).to_bytes(bits // 8, order) for bits in (32, 64) for order in ("little", "big")),
    b"\xff" * 9 + b"\x01",
    b"99999999999999999999",
    b"77777777777",
)
DEEP = 10_000
JSON_VALUES = (
    "null", "true", "[]", "{}", '""', "0", "-1", "1.5", "1e400", "-1e400", "1e-320", "NaN", "-Infinity",
    "9" * 300, "9" * 5000, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP,
    "[" * 900 + "]" * 900, '"\\u0000\\u001b[31mred\\n"', '"\\ud800"', '"../../x"', '"' + "x" * 100_000 + '"',
    "[[1, 2], [3, 4]]", "[null, null]", "[1, 2, 3]", '{"a": 1, "a": 2}', "2147483648", "9223372036854775808",
)  # fmt: skip
YAML_VALUES = (
    *JSON_VALUES,
    "!!python/object/apply:os.system ['touch marker']", "!!python/name:os.system", "!!binary aGk=", "! x",
    "&a [*a]", "*nothing", "&a", ".nan", "-.inf", "0x10", "017", "1:30", "1_000", "2024-01-01", "~", "| ",
    ">-", "? [", "'", '"\\x1b[31m"', '"\\U0010ffff"', "\x1b[31m", "\x00", "\u2028", "a: b", "- a", "%x", "@",
    "{a: [b, {c: d}]}", "<<: *a", "\t1", "1e999999999", "1e-999999999", "[1e5, ,]", "#", "{{x}}",
)  # fmt: skip


def damaged_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Return `data` with one to three damages; `other` is a file of the same kind to splice with."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice((1, 2, 4, 8, 40, 400)))
        data = rng.choice(_DAMAGES)(rng, data, other, start, stop)
    return data


def _flipped(rng: random.Random, data: bytes, _other, start: int, stop: int) -> bytes:
    changed = bytearray(data)
    for position in range(start, min(stop, start + 4)):
        changed[position] ^= 1 << rng.randrange(8)
    return bytes(changed)


_DAMAGES = (
    _flipped,
    _flipped,
    lambda rng, data, _, start, stop: data[:start],
    lambda rng, data, _, start, stop: data[:start] + data[stop:],
    lambda rng, data, _, start, stop: (
        data[:start] + rng.choice((b"\0", b"\xff")) * (stop - start) + data[stop:]
    ),
    lambda rng, data, _, start, stop: data[:start] + rng.randbytes(stop - start) + data[start:],
    lambda rng, data, _, start, stop: data[:stop] + data[start:],
    lambda rng, data, other, start, stop: data[:start] + other[rng.randrange(len(other) + 1) :],
    lambda rng, data, _, start, stop: _overwritten(data, start, rng.choice(HUGE)),
    lambda rng, data, _, start, stop: _overwritten(data, start, rng.choice(HUGE)),
)


def _overwritten(data: bytes, start: int, new: bytes) -> bytes:
    return data[:start] + new + data[start + len(new) :]


def damaged_json(rng: random.Random, content: object) -> bytes:
    """Return the text of `content` with one or two of its values replaced, left out or given twice."""
    text = _with_changed_value(rng, json.dumps(content))
    if rng.random() < 0.3:
        text = _with_changed_value(rng, text)
    return text.encode("utf-8", "surrogatepass")


def _with_changed_value(rng: random.Random, text: str) -> str:
    """Change a value of JSON text in place; text that another change has broken stays as it is."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return text
    places = list(_places(content))
    if not places:
        return rng.choice(JSON_VALUES)
    table, key = rng.choice(places)
    mark, new = "@mark@", rng.choice(JSON_VALUES)
    kind = rng.randrange(4)
    if kind == 0:
        del table[key]
    elif kind == 1 and isinstance(table, dict):
        table[mark] = table[key]  # a key twice
        return json.dumps(content).replace(mark, json.dumps(key)[1:-1])
    elif kind == 2 and isinstance(table, dict):
        table[rng.choice(("\x1b[2J", "a\nb", "", "x" * 5000, "\ud800", "../x", "/x", "a\0b"))] = table.pop(
            key
        )
    else:
        table[key] = mark
        return json.dumps(content).replace(f'"{mark}"', new)
    return json.dumps(content)


def _places(content: object):
    """Yield (container, key) of every value within `content`."""
    waiting = [content]
    while waiting:
        table = waiting.pop()
        keys = (
            list(table) if isinstance(table, dict) else range(len(table)) if isinstance(table, list) else ()
        )
        for key in keys:
            yield table, key
            waiting.append(table[key])


def damaged_yaml(rng: random.Random, text: bytes) -> bytes:
    """Return YAML lines with one to three of their values replaced, or given twice."""
    lines = text.decode().splitlines()
    for _ in range(rng.randint(1, 3)):
        number = rng.randrange(len(lines))
        key = lines[number].partition(":")[0]
        new = f"{key}: {rng.choice(YAML_VALUES)}"
        lines[number] = rng.choice(
            (new, new, new, f"{lines[number]}\n{lines[number]}", rng.choice(YAML_VALUES))
        )
    return "\n".join(lines).encode("utf-8", "surrogatepass")
