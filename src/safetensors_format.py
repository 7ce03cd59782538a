"""The layout of `.safetensors`: length of the header (8 bytes), JSON header, raw arrays without gaps.

Written by hand so that one array is in memory at a time. Our files carry a CRC-32 in the metadata, of the
header (with zeros in the place of the checksum) and all data; MindSpore's own is checked where it has one.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from typing import BinaryIO

from src.array_io import DTYPES, RECORD_KEY, Stored, Weight, blocks, count, crc_of, storage

_CRC_KEY, _NO_CRC = "weights_crc32", "00000000"
_NUMPY_NAMES = {names[1]: dtype for dtype, names in DTYPES.items()}
_MAX_HEADER = 100_000_000  # the limit of the format


def write_safetensors(stream: BinaryIO, weights: Iterable[Weight], record: str) -> None:
    """Write header and arrays, then the header once more with the checksum."""
    weights = list(weights)
    metadata = {"format": "ms", RECORD_KEY: record, _CRC_KEY: _NO_CRC}
    header, offset = {"__metadata__": metadata}, 0
    for weight in weights:
        stop = offset + count(weight.shape) * storage(weight.dtype).itemsize
        names = {"dtype": DTYPES[weight.dtype][1], "shape": list(weight.shape)}
        header[weight.name] = {**names, "data_offsets": [offset, stop]}
        offset = stop
    head = _head(header)
    crc = zlib.crc32(head)
    stream.write(head)
    for weight in weights:
        crc = _write_array(stream, weight, crc)
    metadata[_CRC_KEY] = f"{crc:08x}"
    stream.seek(0)
    stream.write(_head(header))


def parse_safetensors(stream: BinaryIO, size: int) -> tuple[dict[str, Stored], dict]:
    """Return where every array lies, and the record.

    Raises:
        ValueError: the file is damaged or something else; the text completes the sentence "the file ...".
    """
    length = int.from_bytes(stream.read(8), "little")
    if size < 10 or not 2 <= length <= min(size - 8, _MAX_HEADER):
        raise ValueError("is cut short or not a safetensors file")
    head = stream.read(length)
    header = json.loads(head, object_pairs_hook=_no_duplicates)
    if not isinstance(header, dict):
        raise ValueError("is damaged: its header is not a table")
    metadata = header.pop("__metadata__", {})
    start = 8 + length
    index = {name: _stored(name, entry, start) for name, entry in header.items()}
    position = start
    for first, part in sorted(piece for stored in index.values() for piece in stored.pieces):
        if first != position:
            raise ValueError("is damaged: its arrays overlap or leave gaps")
        position += part
    if position != size:
        raise ValueError(f"is cut short or damaged: its arrays end at byte {position}")
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("is damaged: its metadata is not a table of texts")
    if RECORD_KEY in metadata and _CRC_KEY not in metadata:
        raise ValueError("is damaged: its checksum is missing")
    if not _crc_fits(stream, length.to_bytes(8, "little") + head, metadata, index, size):
        raise ValueError("is damaged: its checksum does not fit")
    return index, json.loads(metadata.get(RECORD_KEY, "{}"))


def _write_array(stream: BinaryIO, weight: Weight, crc: int) -> int:
    for block in blocks(weight):
        crc = zlib.crc32(block, crc)
        stream.write(block)
    return crc


def _head(header: dict) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data start on a multiple of eight
    return len(text).to_bytes(8, "little") + text


def _no_duplicates(pairs: list[tuple]) -> dict:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("is damaged: its header holds a name twice")
    return table


def _stored(name: str, entry: object, start: int) -> Stored:
    """Check one entry of the header and return it with offsets from the beginning of the file."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"is damaged: the header's entry of '{name}' is incomplete")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError(f"is damaged: the header's entry of '{name}' is not of whole numbers")
    if not isinstance(kind, str) or kind not in _NUMPY_NAMES:
        raise ValueError(f"holds '{name}' of the type '{kind}', which is not supported")
    if len(offsets) != 2:
        raise ValueError(f"is damaged: '{name}' has {len(offsets)} offsets")
    stored = Stored(tuple(shape), _NUMPY_NAMES[kind], [(start + offsets[0], offsets[1] - offsets[0])])
    stored.check(name)
    return stored


def _crc_fits(stream: BinaryIO, head: bytes, metadata: dict, index: dict[str, Stored], size: int) -> bool:
    if _CRC_KEY in metadata:
        pattern = f'("{_CRC_KEY}" *: *)"[^"]*"'.encode()
        blank = re.sub(pattern, rb'\1"%s"' % _NO_CRC.encode(), head, count=1)
        return f"{crc_of(stream, len(head), size, zlib.crc32(blank)):08x}" == metadata[_CRC_KEY]
    if "crc_num" in metadata and all(stored.shape for stored in index.values()):
        # of a scalar MindSpore takes something else than its bytes, so files with scalars are not checked
        crc = 0
        for name in sorted(index):
            first, part = index[name].pieces[0]
            crc = crc_of(stream, first, first + part, zlib.crc32(name.encode(), crc))
        return crc == int(metadata["crc_num"])
    return True
