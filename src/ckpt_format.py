"""The layout of MindSpore's `.ckpt`: protobuf records and a CRC-32, read and written as a stream.

    Checkpoint  { repeated Value value = 1 }
    Value       { required string tag = 1; TensorProto tensor = 2 }
    TensorProto { repeated int64 dims = 1; required string tensor_type = 2;
                  required bytes tensor_content = 3 }

A large array is cut into several Values with the same tag and dims. The file may end with `crc_num` and ten
bytes, the big-endian CRC-32 of everything before. Written by hand because the protobuf library keeps the
whole file in memory and stops at 2 GB. Encrypted files and map parameters are not covered.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from src.array_io import DTYPES, RECORD_KEY, Stored, Weight, blocks, crc_of

_CRC_MARK = b"crc_num"
_CRC_BYTES = 10
_BYTES_FIELD = 2  # wire type: a length and that many bytes
_VALUE = _TAG = 0x0A
_TENSOR = _TYPE = 0x12
_DIM, _CONTENT = 0x08, 0x1A
_NUMPY_NAMES = {names[0]: dtype for dtype, names in DTYPES.items()}
_MAX_TEXT = 2**20


def write_ckpt(stream: BinaryIO, weights: Iterable[Weight], record: str) -> None:
    """Write all arrays, the record as a text value before them, and the checksum."""
    crc = 0

    def put(data) -> None:
        nonlocal crc
        crc = zlib.crc32(data, crc)
        stream.write(data)

    def put_array(weight: Weight) -> None:
        for block in blocks(weight):
            put(_head(weight.name, weight.shape, DTYPES[weight.dtype][0], block.size))
            put(block)

    text = record.encode("utf-32-le")
    put(_head(RECORD_KEY, (0,), "str", len(text)))
    put(text)
    for weight in weights:
        put_array(weight)
    stream.write(_CRC_MARK + crc.to_bytes(_CRC_BYTES, "big"))


def parse_ckpt(stream: BinaryIO, size: int) -> tuple[dict[str, Stored], dict]:
    """Return where every array lies, and the record; text values other than the record are left out.

    Raises:
        ValueError: the file is damaged or something else; the text completes the sentence "the file ...".
    """
    end = size - len(_CRC_MARK) - _CRC_BYTES
    stream.seek(max(0, end))
    trailer = stream.read()
    checked = trailer.startswith(_CRC_MARK)
    if not checked:
        end = size
    elif crc_of(stream, 0, end) != int.from_bytes(trailer[len(_CRC_MARK) :], "big"):
        raise ValueError("is damaged: its checksum does not fit")

    index: dict[str, Stored] = {}
    record, last = None, None
    stream.seek(0)
    for _, _, stop in _fields(stream, end, (_VALUE,)):
        tag, dims, kind, start, length = _value(stream, stop)
        if kind == "str":
            if tag == RECORD_KEY:
                record = json.loads(_text(stream, start, start + length, "utf-32-le"))
        elif kind not in _NUMPY_NAMES:
            raise ValueError(f"holds '{tag}' of the type '{kind}', which is not supported")
        elif tag == last:
            if (dims, _NUMPY_NAMES[kind]) != index[tag][:2]:
                raise ValueError(f"is damaged: the slices of '{tag}' do not belong together")
            index[tag].pieces.append((start, length))
        elif tag in index:
            raise ValueError(f"is damaged: it holds '{tag}' twice")
        else:
            index[tag] = Stored(dims, _NUMPY_NAMES[kind], [(start, length)])
        last = tag
    if record is not None and not checked:
        raise ValueError("is cut short: its checksum is missing")
    for tag, stored in index.items():
        if stored.shape == (0,) and stored.pieces[0][1]:  # early MindSpore versions wrote a scalar like this
            index[tag] = stored = stored._replace(shape=())
        stored.check(tag)
    return index, record or {}


def _head(tag: str, shape: Iterable[int], kind: str, content: int) -> bytes:
    """Return the bytes of one Value up to its content, of which only the length is needed."""
    dims = b"".join(bytes([_DIM]) + _number(dim) for dim in shape)
    tensor = dims + _counted(_TYPE, kind.encode()) + bytes([_CONTENT]) + _number(content)
    value = _counted(_TAG, tag.encode()) + bytes([_TENSOR]) + _number(len(tensor) + content) + tensor
    return bytes([_VALUE]) + _number(len(value) + content) + value


def _counted(key: int, data: bytes) -> bytes:
    return bytes([key]) + _number(len(data)) + data


def _number(value: int) -> bytes:
    """Return a protobuf varint: seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _value(stream: BinaryIO, end: int) -> tuple[str, tuple[int, ...], str, int, int]:
    """Return tag, dims, type and the place and length of the content of the Value that ends at `end`."""
    tag, dims, kind, content = None, [], None, None
    for key, start, stop in _fields(stream, end, (_TAG, _TENSOR)):
        if key == _TAG:
            tag = _text(stream, start, stop)
            continue
        for inner, first, after in _fields(stream, stop, (_DIM, _TYPE, _CONTENT)):
            if inner == _DIM:
                dims.append(first)
            elif inner == _TYPE:
                kind = _text(stream, first, after)
            else:
                content = (first, after - first)
    if tag is None or kind is None or content is None:
        raise ValueError("is damaged: an incomplete record")
    return (tag, tuple(dims), kind, *content)


def _fields(stream: BinaryIO, end: int, keys: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield (key, start, stop) of every field before `end`; for a number, `start` is its value.

    The caller may move the stream: it is put behind the field before the next one is read.
    """
    while stream.tell() < end:
        key = _read_number(stream)
        if key not in keys:
            raise ValueError("is damaged or not a MindSpore checkpoint")
        start = _read_number(stream)
        if key & 7 != _BYTES_FIELD:
            yield key, start, stream.tell()
            continue
        length, start = start, stream.tell()
        if start + length > end:
            raise ValueError("is cut short or damaged: a record reaches beyond its end")
        yield key, start, start + length
        stream.seek(start + length)


def _read_number(stream: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.read(1)
        if not byte:
            raise ValueError("is cut short or damaged: it ends within a record")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] <= 0x7F:
            return value
    raise ValueError("is damaged or not a MindSpore checkpoint")


def _text(stream: BinaryIO, start: int, stop: int, encoding: str = "utf-8") -> str:
    if stop - start > _MAX_TEXT:
        raise ValueError(f"is damaged: a text of {stop - start} bytes")
    stream.seek(start)
    return stream.read(stop - start).decode(encoding)
