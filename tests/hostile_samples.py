"""Whole files of every kind that a user can hand over, for `hostile.py` to damage."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from bit_npz import bit_arrays
from PIL import Image
from support import SIDECAR
from vit_npz import big_vision, golden_arrays

from src.array_io import Weight
from src.ckpt_format import write_ckpt
from src.weight_file import write_weights

SIDECAR_FULL = {"format": 1, **SIDECAR, "class_num": 3, "class_names": ["a", "b", "c"]}
RECORD = {
    "format": 1, "network": "vit_nano_patch8", "class_num": 3, "class_names": ["a", "b", "c"],
    "image_mean": [1.0, 2.0, 3.0], "image_std": [1.0, 2.0, 3.0], "eval_image_size": [16, 24],
    "eval_crop_ratio": 0.9, "interpolation": "BICUBIC", "grid": [2, 3], "pool": "token", "pre_logits": False,
    "gelu": "tanh", "pretrained": {"source": "x.npz", "sha256": "00"},
}  # fmt: skip
TABLE = {
    "version": "1.0", "server_count": "2", "status": "completed",
    "server_list": [
        {"server_id": f"10.0.0.{s}", "host_nic_ip": "reserve", "device": [
            {"device_id": str(d), "device_ip": f"192.1.{s}.{d}", "rank_id": str(2 * s + d)} for d in range(2)
        ]} for s in range(2)
    ],
}  # fmt: skip
LABELS = {"cat/1.jpg": 0, "cat/2.jpg": 0, "dog/1.jpg": 1, "eel/1.jpg": 2}
IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "MPO")


def texts(content: dict) -> list[bytes]:
    return [json.dumps(content).encode(), json.dumps(content, indent=1).encode()]


def image_samples() -> list[bytes]:
    """Images of every format; in several modes and with text, EXIF, a palette or frames where it has them."""
    rng = np.random.default_rng(0)
    photo = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8))
    exif = Image.Exif()
    exif[0x010E], exif[0x0112] = "a description", 6
    samples = [encoded(photo, form) for form in IMAGE_FORMATS]
    frames = {"save_all": True, "append_images": [photo.rotate(90), photo.rotate(180)]}
    samples += [encoded(photo, form, **frames) for form in ("GIF", "PNG", "WEBP", "TIFF", "MPO")]
    samples += [
        encoded(photo, form, exif=exif, icc_profile=rng.bytes(300)) for form in ("JPEG", "PNG", "WEBP")
    ]
    samples += [
        encoded(photo, "TIFF", compression=c) for c in ("tiff_lzw", "tiff_deflate", "packbits", "jpeg")
    ]
    samples += [encoded(photo.convert(mode), "PNG") for mode in ("1", "L", "P", "LA", "RGBA", "I;16")]
    samples += [encoded(photo.convert(mode), "TIFF") for mode in ("1", "L", "CMYK", "I", "F", "I;16")]
    samples.append(encoded(photo.convert("CMYK"), "JPEG", progressive=True))
    return samples


def encoded(image: Image.Image, form: str, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def npz_samples() -> list[bytes]:
    arrays = {
        f"{i}/kernel": np.arange(6, dtype=kind).reshape(2, 3) for i, kind in enumerate(("f4", "f2", ">f8"))
    }
    return [saved(save, arrays) for save in (np.savez, np.savez_compressed)]


def saved(save, arrays) -> bytes:
    stream = io.BytesIO()
    save(stream, **arrays)
    return stream.getvalue()


def npy_samples() -> list[bytes]:
    return [
        saved(lambda stream, a: np.save(stream, a), {"a": np.zeros(shape, "f4")}) for shape in ((2, 3), ())
    ]


def network_samples() -> list:
    vit = golden_arrays(8, 64, 4, 4, 128, 7, grid=2)
    return [
        {name: array.shape for name, array in arrays.items()}
        for arrays in (vit, big_vision(vit), big_vision(vit, scanned=True), bit_arrays())
    ]


def weight_samples(suffix: str, record: dict | None) -> list[bytes]:
    """Files without the checksum, which would hide everything behind it."""
    arrays = {"a": np.zeros((2, 3), np.float32), "b/c": np.arange(4), "d": np.float16(2.5)}
    weights = [Weight(name, a.shape, lambda a=a: a, a.dtype.name) for name, a in arrays.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"x{suffix}")
        write_weights(path, weights, record)
        whole = path.read_bytes()
    if suffix == ".ckpt":
        return [whole[len(with_record("{}")) - 17 : -17], whole]
    length = 8 + int.from_bytes(whole[:8], "little")
    header = {key: value for key, value in json.loads(whole[8:length]).items() if key != "__metadata__"}
    text = json.dumps(header).encode()
    return [len(text).to_bytes(8, "little") + text + whole[length:], whole]


def with_record(text: str) -> bytes:
    stream = io.BytesIO()
    write_ckpt(stream, [], text)
    return stream.getvalue()


def cifar_samples() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [b"".join(bytes([i % 10]) + rng.bytes(3072) for i in range(n)) for n in (4, 3)]


def archive_samples(form: str) -> list[bytes]:
    files = {"cat/1.jpg": b"cat" * 40, "cat/deep/2.jpg": b"deep" * 100, "x" * 120 + "/é.jpg": b"long"}
    samples = []
    for mode, options in {
        "tar": (("w", {"format": tarfile.PAX_FORMAT}), ("w", {"format": tarfile.GNU_FORMAT}), ("w:gz", {})),
        "zip": (
            (zipfile.ZIP_STORED, {}),
            (zipfile.ZIP_DEFLATED, {}),
            (zipfile.ZIP_BZIP2, {}),
            (zipfile.ZIP_LZMA, {}),
        ),
    }[form]:
        stream = io.BytesIO()
        if form == "zip":
            with zipfile.ZipFile(stream, "w", mode) as archive:
                for name, content in files.items():
                    archive.writestr(name, content)
        else:
            with tarfile.open(fileobj=stream, mode=mode, **options) as archive:
                for name, content in files.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
                link = tarfile.TarInfo("link")
                link.type, link.linkname = tarfile.SYMTYPE, "cat/1.jpg"
                archive.addfile(link)
        samples.append(stream.getvalue())
    return samples


def config_samples() -> list[bytes]:
    folder = Path(__file__).parents[1] / "config"
    return [path.read_bytes() for path in sorted(folder.glob("*.yml"))]


def member(shape, data=b"", descr="<f4"):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    return content.getvalue() + data


def zipped(members, compression=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()
