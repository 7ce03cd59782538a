"""Files made by hand to hurt: bombs, endless claims, values nested or wrong. One line each, at low cost."""

import io
import json
import os
import shutil
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from hostile import KINDS, bounded, read_image
from hostile_samples import LABELS, RECORD, SIDECAR_FULL, TABLE, member, zipped
from PIL import Image

from src.convert import convert
from src.model_utils.archives import unpack, unpack_all
from src.weight_file import write_weights

# Images


def png(width, height, data=b"", *chunks):
    """A PNG of one bit a pixel that claims a size."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


def encoded(form, size=(9, 7), mode="RGB", **options):
    stream = io.BytesIO()
    Image.new(mode, size, 1).save(stream, form, **options)
    return stream.getvalue()


def patched(data, old, new):
    assert data.count(old) >= 1
    return data.replace(old, new, 1)


def frames(form, count, **options):
    images = [Image.new("RGB", (9, 7), (number * 100 % 256, number // 256, 0)) for number in range(count)]
    stream = io.BytesIO()
    images[0].save(stream, form, save_all=True, append_images=images[1:], **options)
    return stream.getvalue()


def tiff(width, height):
    """An uncompressed grey TIFF that claims a size."""
    tags = [
        (256, width),
        (257, height),
        (258, 8),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, height),
        (279, 9),
    ]
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + body + bytes(400)


def zeros():
    return zlib.compress(bytes(100_000_000), 1)


IMAGES = {
    "a PNG of 60,000 x 60,000": (png(60_000, 60_000), "bomb"),
    "a GIF of 65,535 x 65,535": (patched(encoded("GIF"), b"\x09\0\x07\0", b"\xff" * 4), "cannot read"),
    "a TIFF of 100,000 x 100,000": (tiff(100_000, 100_000), "bomb"),
    "a WebP of 2^24 x 2^8": (
        lambda: patched(frames("WEBP", 2), b"\x08\0\0\x06\0\0", b"\xff\xff\xff\xff\0\0"),
        "cannot read",
    ),
    "an image of 1 x 89 million": (png(1, 89_000_000), "more than 65535 in a row"),
    "an image of 65,536 x 1": (png(65_536, 1, bytes(8193)), "more than 65535 in a row"),
    "an image of 65,535 x 1": (png(65_535, 1, bytes(8193)), ""),
    "no pixels": (b"P6 0 0 255\n", "cannot read"),
    "a BMP without height": (
        patched(encoded("BMP"), b"\x09\0\0\0\x07\0\0\0", b"\x09\0\0\0\0\0\0\0"),
        "cannot read",
    ),
    "a text of 100 MB": (lambda: png(9, 7, bytes(14), (b"zTXt", b"key\0\0" + zeros())), "cannot read"),
    "an ICC profile of 100 MB": (lambda: png(9, 7, bytes(14), (b"iCCP", b"icc\0\0" + zeros())), "too large"),
    "pixels of 100 MB more": (lambda: png(9, 7, bytes(100_000_000)), ""),
    "an EXIF block of noise": (
        encoded("JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + bytes(range(256))),
        "",
    ),
    "an EXIF block that refers to itself": (
        encoded("JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0\x08\0\0\0"),
        "",
    ),
    "a GIF of 3,000 frames": (lambda: frames("GIF", 3000), ""),
    "an APNG that claims 2^32 frames": (
        png(9, 7, bytes(14), (b"acTL", b"\xff" * 8), (b"fcTL", b"\xff" * 26)),
        "cannot read",
    ),
    **{
        f"a {form} of {size[0]} x {size[1]}": (encoded(form, size), "")
        for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "PPM")
        for size in ((1, 1), (30_000, 1), (1, 30_000))
    },
    **{f"a WebP of {w} x {h}": (encoded("WEBP", (w, h)), "") for w, h in ((1, 1), (16_000, 1), (1, 16_000))},
}


@pytest.mark.parametrize(("data", "words"), IMAGES.values(), ids=IMAGES)
def test_images_that_hurt(tmp_path, data, words):
    path = tmp_path / "x.png"
    path.write_bytes(data() if callable(data) else data)
    line = bounded(lambda: read_image(path), memory=2**31)
    assert words in line
    assert bool(words) == bool(line)


def ckpt_value(dims, content=bytes(8)):
    """One record `a` of float32, whose dims are varints."""
    tensor = (
        b"".join(b"\x08" + dim for dim in dims) + b"\x12\x07Float32\x1a" + bytes([len(content)]) + content
    )
    body = b"\x0a\x01a\x12" + varint(len(tensor)) + tensor
    return b"\x0a" + varint(len(body)) + body


def varint(number):
    text = b""
    while number > 0x7F:
        text, number = text + bytes([number & 0x7F | 0x80]), number >> 7
    return text + bytes([number])


def safetensors_header(text):
    return len(text).to_bytes(8, "little") + text


def table(**changes):
    content = json.loads(json.dumps(TABLE))
    content["server_list"][1]["device"][0].update(changes)
    return json.dumps(content).encode()


def sidecar(**changes):
    preprocess = {**SIDECAR_FULL["preprocess"], **changes}
    return json.dumps({**SIDECAR_FULL, "preprocess": preprocess}).encode()


DEEP = b"[" * 900 + b"]" * 900
CONTENTS = {
    "npz: 2^60 elements": ("npz", zipped({"a.npy": member((2**60,))}), "does not have the size"),
    "npz: an axis of nothing and 10^12 more": ("npz", zipped({"a.npy": member((0, 10**12))}), ""),
    "npz: 2^40 layers of nothing": (
        "network",
        zipped(
            {
                "embedding/kernel.npy": member((8, 8, 3, 0)),
                "pos_embedding.npy": member((1, 4, 0)),
                "Transformer/encoderblock/MultiHeadDotProductAttention_0/query/kernel.npy": member(
                    (2**40, 0, 4, 16)
                ),
                "Transformer/encoderblock/MlpBlock_0/Dense_0/kernel.npy": member((2**40, 0, 128)),
                "head/kernel.npy": member((0, 7)),
            }
        ),
        "none of the known networks",
    ),
    "npz: names that paint the terminal": (
        "npz",
        zipped({"\x1b[31m\n.npx": b"x", "a.npy": b""}),
        r"\x1b[31m",
    ),
    "safetensors: a header of 2^63 bytes": ("safetensors", b"\0" * 7 + b"\x80{}" + bytes(9), "is cut short"),
    "safetensors: a header that is nested": ("safetensors", safetensors_header(b"[" * 100_000), "is damaged"),
    "safetensors: a million long axes": (
        "safetensors",
        safetensors_header(
            b'{"a": {"dtype": "F32", "data_offsets": [0, 0], "shape": ['
            + b",".join([b"9" * 4000] * 5000)
            + b"]}}"
        ),
        "has 5000 axes",
    ),
    "safetensors: a list as type": (
        "safetensors",
        safetensors_header(b'{"a": {"dtype": ["F32"], "data_offsets": [0, 0], "shape": []}}'),
        "type",
    ),
    "ckpt: dims whose product is 2^64 + 2": ("ckpt", ckpt_value([b"\x02", varint(2**63 + 1)]), "is damaged"),
    "ckpt: 100,000 dims": ("ckpt", ckpt_value([b"\xff" * 9 + b"\x01"] * 100_000), "has 100000 axes"),
    "rank table: a rank of 5,000 digits": (
        "rank_table",
        table(rank_id="9" * 5000),
        "whole number as rank_id",
    ),
    "rank table: an address that is nested": (
        "rank_table",
        table(device_ip="@").replace(b'"@"', DEEP),
        "wants text as device_ip",
    ),
    "rank table: a status that is nested": ("rank_table", b'{"status": ' + DEEP + b"}", "has status [[["),
    "class map: nested": ("class_map", b"[" * 100_000, "nested too deeply"),
    "class map: a name twice": ("class_map", b'{"a": 0, "a": 1}', "0 to n-1"),
    "labels: nested": ("labels", b"[" * 100_000, "nested too deeply"),
    "labels: one of 2^70": ("labels", json.dumps({**LABELS, "cat/1.jpg": 2**70}).encode(), "a label is"),
    "sidecar: the mean is no number": (
        "sidecar",
        sidecar(image_mean=[float("nan"), 1, 2]),
        "preprocess is wrong",
    ),
    "sidecar: the mean is endless": ("sidecar", sidecar(image_mean=[10**400, 1, 2]), "preprocess is wrong"),
    "sidecar: no deviation": ("sidecar", sidecar(image_std=[0, 1, 2]), "preprocess is wrong"),
    "sidecar: a filter that is a list": ("sidecar", sidecar(interpolation=[]), "preprocess is wrong"),
    "sidecar: a crop of nothing": (
        "sidecar",
        sidecar(eval_crop_ratio=1e-300),
        "eval_crop_ratio is 0 or from",
    ),
    "sidecar: images of 2^31": ("sidecar", sidecar(eval_image_size=[2**31 - 1] * 2), "preprocess is wrong"),
    "config: a name of 300 letters": ("config", b"dataset_path: " + b"x" * 300, "longer than 255 bytes"),
    "config: a billion laughs": (
        "config",
        b"seed: &a0 [1, 1]\n"
        + b"".join(b"k%d: &a%d [*a%d, *a%d]\n" % (i, i, i - 1, i - 1) for i in range(1, 99)),
        "error: ",
    ),
    "result: more than memory": ("result", bytes(1201), "has 1201 bytes"),
}


@pytest.mark.parametrize(("kind", "data", "words"), CONTENTS.values(), ids=CONTENTS)
def test_contents_that_hurt(tmp_path, kind, data, words):
    path = tmp_path / KINDS[kind].name
    path.write_bytes(data)
    line = bounded(lambda: KINDS[kind].read(path), memory=2**29)
    assert words in line
    assert bool(words) == bool(line)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("network", ["vit"]),
        ("class_num", 2**40),
        ("class_names", "abc"),
        ("image_mean", [1, 2, None]),
        ("image_std", [1, 0, 2]),
        ("eval_image_size", [16]),
        ("eval_crop_ratio", "0.9"),
        ("interpolation", {}),
        ("grid", [2, -3]),
        ("pool", ["token"]),
        ("gelu", 1),
        ("pre_logits", "no"),
    ],
)
@pytest.mark.parametrize("kind", ["ckpt", "safetensors"])
def test_a_record_that_nobody_wrote_is_refused_by_its_key(tmp_path, kind, key, value):
    path = tmp_path / KINDS[kind].name
    write_weights(path, [], RECORD)
    assert not bounded(lambda: KINDS[kind].read(path))
    write_weights(path, [], {**RECORD, key: value})
    assert f"its record has no right {key};" in bounded(lambda: KINDS[kind].read(path))


def test_zeros_that_inflate_are_not_read_before_the_shapes_fit(tmp_path):
    path = tmp_path / "x.npz"
    kernel = member((1, 1, 2048, 40_000), bytes(4 * 2048 * 40_000))
    path.write_bytes(zipped({"resnet/head/conv2d/kernel.npy": kernel}))
    assert path.stat().st_size < 2**20
    assert "missing" in bounded(lambda: convert(path, tmp_path / "x.ckpt"), memory=2**28)


# Archives


def long_name(size):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, size
    return info.tobuf(tarfile.GNU_FORMAT)


def sparse():
    info = tarfile.TarInfo("hole")
    info.size, info.pax_headers = (
        0,
        {
            "GNU.sparse.major": "0",
            "GNU.sparse.minor": "1",
            "GNU.sparse.size": str(2**50),
            "GNU.sparse.map": f"{2**50},0",
        },
    )
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    return stream.getvalue()


def endless_link():
    info = zipfile.ZipInfo("link")
    info.external_attr, info.compress_type = 0o120777 << 16, zipfile.ZIP_DEFLATED
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(info, b"x" * 300_000_000)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (sparse, "is a sparse file"),
        (lambda: long_name(2**33 - 1), "a name of 8589934"),
        (lambda: long_name(2**62), "a name of 46116860"),
        (lambda: zlib_member(long_name(3 * 10**8) + bytes(3 * 10**8)), "a name of 300000"),
        (endless_link, "a link with an endless target"),
        (lambda: zipped({"\x1b[31m\n/../x": b""}), "no plain relative name"),
        (lambda: zipped({"a": b"", "a/b": b""}), "cannot unpack"),
        (lambda: zipped({"x" * 300: b""}), "File name too long"),
    ],
)
def test_archives_that_hurt(tmp_path, make, words):
    path = tmp_path / "x.zip"
    path.write_bytes(make())
    assert words in bounded(lambda: unpack(path, tmp_path / "x"), memory=2**28)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.zip"]


def zlib_member(data):
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(data) + packer.flush()


def test_archives_in_archives_end(tmp_path):
    content = b"a"
    for _ in range(150):
        content = zipped({"a.zip": content}, zipfile.ZIP_STORED)
    (tmp_path / "x.zip").write_bytes(content)
    assert "lies too deep" in bounded(lambda: unpack_all(tmp_path))


def test_what_bears_the_name_of_an_archive_or_its_receipt_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "x.zip")
    assert "not a regular file" in bounded(lambda: unpack_all(tmp_path))
    (tmp_path / "x.zip").unlink()
    (tmp_path / "x.zip").write_bytes(zipped({"a": b"a"}))
    (tmp_path / "x").mkdir()
    for make in (os.mkfifo, lambda path: path.write_bytes(b"\xff"), Path.mkdir):
        make(tmp_path / "x/.unpacked")
        bounded(lambda: unpack_all(tmp_path))
        shutil.rmtree(tmp_path / "x")
        (tmp_path / "x").mkdir()
