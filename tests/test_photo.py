import io
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from src.image_io import BadImageError, decode_image
from src.photo import Photo


def resized(photo, size, resample, box=None):
    """As the method of a Pillow image."""
    image, part = photo.part(size[::-1], box)
    return image.resize(size, resample, part)


BOXES = [(0, 0, 97, 131), (3, 5, 60, 17), (0, 0, 97, 1), (90, 60, 97, 90), (10, 100, 40, 131)]
KINDS = {
    "4:2:0": {"subsampling": "4:2:0"},
    "4:2:2": {"subsampling": "4:2:2"},
    "4:4:4": {"subsampling": "4:4:4"},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_blocks": 3},
    "comment": {"comment": b"a" * 5000, "exif": Image.Exif()},
}


def picture(mode="RGB", size=(97, 131)):
    """Colours that change quickly, so that the smoothing of colours is seen."""
    noise = np.random.default_rng(0).integers(0, 256, (size[1] // 2, size[0] // 2, 3), np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).convert(mode)


def encoded(image, form="JPEG", **options):
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("resample", [Image.Resampling.NEAREST, Image.Resampling.LANCZOS])
def test_a_part_has_the_pixels_that_it_has_in_the_whole_image(kind, mode, resample):
    content = encoded(picture(mode), **KINDS[kind])
    whole = Image.open(io.BytesIO(content)).convert("RGB")
    for box in BOXES:
        for size in ((20, 30), (150, 140)):
            found = resized(Photo(content), size, resample, box)
            assert np.array_equal(found, whole.resize(size, resample, box))


@pytest.mark.parametrize("form", ["PNG", "WEBP", "GIF", "BMP", "TIFF", "MPO"])
def test_other_formats_give_their_part_too(form):
    content = encoded(picture(), form)
    expected = decode_image(content).resize((20, 30), Image.Resampling.BILINEAR, BOXES[1])
    assert np.array_equal(resized(Photo(content), (20, 30), Image.Resampling.BILINEAR, BOXES[1]), expected)


def test_without_a_box_it_is_the_whole_image():
    content = encoded(picture())
    photo = Photo(content)
    assert (photo.width, photo.height) == (97, 131)
    expected = decode_image(content).resize((20, 30), Image.Resampling.BILINEAR)
    assert np.array_equal(resized(photo, (20, 30), Image.Resampling.BILINEAR), expected)


def decoded_sizes(monkeypatch):
    """(width, height) of every image that is resized from now on."""
    sizes, resize = [], Image.Image.resize
    monkeypatch.setattr(
        Image.Image, "resize", lambda image, *a: sizes.append(image.size) or resize(image, *a)
    )
    return sizes


@pytest.mark.parametrize("kind", KINDS)
def test_no_pixel_depends_on_where_the_file_is_cut(kind):
    content = encoded(picture(), **KINDS[kind])
    whole = Image.open(io.BytesIO(content)).convert("RGB")
    for bottom in range(1, 131):
        box = (0, max(0, bottom - 9), 97, bottom)
        for size in ((97, 9), (40, 3)):
            for resample in (Image.Resampling.BILINEAR, Image.Resampling.LANCZOS):
                assert np.array_equal(
                    resized(Photo(content), size, resample, box), whole.resize(size, resample, box)
                )


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4"])
@pytest.mark.parametrize("scans", [1, 3, 5, 8])
def test_a_progressive_file_without_its_last_scans_gives_the_same_pixels(subsampling, scans):
    """libjpeg then smooths over blocks, which reaches further down."""
    content = encoded(picture(), progressive=True, subsampling=subsampling)
    starts = [at for at in range(len(content) - 1) if content[at : at + 2] == b"\xff\xda"]
    assert len(starts) > scans
    short = content[: starts[scans]] + b"\xff\xd9"
    whole = Image.open(io.BytesIO(short)).convert("RGB")
    for bottom in range(5, 131, 7):
        box = (0, 0, 97, bottom)
        found = resized(Photo(short), (97, bottom), Image.Resampling.BILINEAR, box)
        assert np.array_equal(found, whole.resize((97, bottom), Image.Resampling.BILINEAR, box))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bottom", "bound"), [(1, 16), (17, 32), (90, 112)])
def test_little_more_is_decoded_than_the_part(kind, bottom, bound, monkeypatch):
    photo, sizes = Photo(encoded(picture(), **KINDS[kind])), decoded_sizes(monkeypatch)
    resized(photo, (97, bottom), Image.Resampling.BILINEAR, (0, 0, 97, bottom))
    more = 32 if kind == "progressive" else 0
    assert bottom <= sizes[0][1] <= min(131, bound + more)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xd8\xff\xd9", b"\xff\xd8" + bytes(50) + b"\xff\xd9", b"GIF" * 9]
)
def test_what_is_no_image_is_refused_at_once(content):
    with pytest.raises(BadImageError, match=f"of {len(content)} bytes"):
        Photo(content)


def test_of_a_giant_little_is_read(tmp_path):
    path = tmp_path / "giant.jpg"
    with path.open("wb") as file:
        file.write(b"\xff\xd8")
        file.truncate(3 << 30)
    tracemalloc.start()
    with pytest.raises(BadImageError, match=r"giant\.jpg"):
        Photo(path)
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()


def test_a_height_that_libjpeg_refuses_is_refused_whatever_part_is_shown():
    content = bytearray(encoded(picture("L")))
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 7] = (65_520).to_bytes(2, "big")
    assert not is_read(decode_image, content)
    assert not is_read(part, content)


def test_a_decompression_bomb_is_refused_whatever_part_is_shown():
    content = bytearray(encoded(picture("L")))
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = b"\xff\xff" * 2
    with pytest.raises(BadImageError, match="bomb"):
        Photo(bytes(content))


def test_a_header_without_components_is_a_broken_image():
    content = bytearray(encoded(picture("L")))
    frame = content.index(b"\xff\xc0")
    content[frame + 2 : frame + 4] = b"\x00\x08"
    with pytest.raises(BadImageError):
        part(content)


def test_a_file_that_ends_too_early_is_found_whatever_part_is_shown(tmp_path):
    content = encoded(picture())
    path = tmp_path / "short.jpg"
    for missing in (1, 2, 10, 2000):
        path.write_bytes(content[:-missing])
        photo = Photo(path)
        with pytest.raises(BadImageError, match=r"short\.jpg: image file is truncated"):
            resized(photo, (5, 4), Image.Resampling.BILINEAR, (0, 0, 10, 10))


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_refused_when_the_whole_image_is_and_only_then(kind):
    content, rng = encoded(picture(), **KINDS[kind]), np.random.default_rng(0)
    verdicts = set()
    for _ in range(150):
        damaged = bytearray(content)
        place = rng.integers(len(content) // 2, len(content) - 2)
        damaged[place : place + 2] = 0xFF, rng.integers(0xC0, 0xFF)
        verdicts.add((is_read(decode_image, damaged), is_read(part, damaged)))
    assert verdicts == {(True, True), (False, False)}


def part(content):
    resized(Photo(bytes(content)), (5, 4), Image.Resampling.BILINEAR, (0, 0, 20, 10))


def is_read(read, content):
    try:
        read(bytes(content))
    except BadImageError:
        return False
    return True


def landscape(size):
    """Soft forms of a few pixels, in which a shift is seen."""
    noise = np.random.default_rng(1).integers(0, 256, (size[1] // 16, size[0] // 16, 3), np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


REDUCED = [  # image, part, result, and at what share of its size the image is decoded
    ((601, 403), None, (300, 201), 2),
    ((601, 403), None, (301, 200), 1),
    ((600, 400), (31, 17, 531, 389), (224, 150), 2),
    ((603, 405), (100, 101, 603, 405), (100, 76), 4),
    ((597, 397), (0, 0, 597, 397), (60, 48), 8),
    ((600, 400), (50, 60, 300, 310), (224, 224), 1),
    ((601, 401), (1, 1, 600, 200), (290, 20), 2),
]


@pytest.mark.parametrize(("size", "box", "result", "factor"), REDUCED)
@pytest.mark.parametrize("kind", ["4:2:0", "4:4:4", "progressive"])
def test_reduced_decoding_is_nearly_full_decoding_and_shifts_nothing(size, box, result, factor, kind):
    content = encoded(landscape(size), quality=95, **KINDS[kind])
    full, reduced = (
        np.asarray(resized(Photo(content, reduced=reduced), result, Image.Resampling.BILINEAR, box), float)
        for reduced in (False, True)
    )
    assert np.array_equal(full, reduced) == (factor == 1)
    difference = reduced - full
    assert np.abs(difference).mean() < 3
    for axis in (0, 1):
        slope = np.gradient(full, axis=axis)
        assert abs((difference * slope).sum() / (slope**2).sum()) < 0.01  # of a pixel of the result


@pytest.mark.parametrize(("size", "box", "result", "factor"), REDUCED)
def test_an_image_is_reduced_as_far_as_the_part_keeps_the_pixels_it_needs(
    size, box, result, factor, monkeypatch
):
    photo, sizes = Photo(encoded(landscape(size)), reduced=True), decoded_sizes(monkeypatch)
    resized(photo, result, Image.Resampling.BILINEAR, box)
    assert [width for width, _ in sizes] == [-(-size[0] // factor)]


@pytest.mark.parametrize("form", ["PNG", "MPO"])
def test_other_formats_are_reduced_where_they_can_be(form):
    content = encoded(landscape((400, 300)), form)
    expected = decode_image(content).resize((100, 60), Image.Resampling.BILINEAR)
    found = resized(Photo(content, reduced=True), (100, 60), Image.Resampling.BILINEAR)
    assert np.abs(np.subtract(found, expected, dtype=float)).mean() < (0.1 if form == "PNG" else 3)
