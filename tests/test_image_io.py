import errno
import io
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from src.image_io import BadImageError, decode_image, image_size

RED = (200, 20, 30)


def encoded(image, form, **options):
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def photo(height=40, width=60):
    rows, columns = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([rows * 5, columns * 4, rows + columns], -1).astype(np.uint8))


def solid(mode="RGB", color=RED):
    return Image.new(mode, (7, 5), color)


def first_pixel(source):
    image = decode_image(source)
    assert image.mode == "RGB"
    return image.getpixel((0, 0))


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_come_back_exactly(form):
    image = photo()
    assert np.array_equal(decode_image(encoded(image, form)), image)


@pytest.mark.parametrize("form", ["JPEG", "WEBP", "GIF", "MPO"])
def test_lossy_and_palette_formats_come_back_nearly(form):
    assert np.allclose(first_pixel(encoded(solid(), form)), RED, atol=6)


def test_jpeg_pixels_are_those_of_pillow():
    data = encoded(photo(), "JPEG")
    assert np.array_equal(decode_image(data), Image.open(io.BytesIO(data)).convert("RGB"))


def test_the_content_counts_and_not_the_extension(tmp_path):
    path = tmp_path / "x.JPEG"
    path.write_bytes(encoded(solid(), "PNG"))
    assert first_pixel(path) == RED
    assert first_pixel(str(path)) == RED


def test_cmyk_jpeg_is_not_inverted():
    assert np.allclose(first_pixel(encoded(solid().convert("CMYK"), "JPEG")), RED, atol=30)


def test_ycck_jpeg_is_not_inverted():
    cyan, magenta, yellow, key = solid().convert("CMYK").split()
    ycc = Image.merge("RGB", (cyan, magenta, yellow)).convert("YCbCr").split()
    planes = [plane.point(lambda v: 255 - v) for plane in ycc]  # Pillow inverts what it writes
    data = bytearray(encoded(Image.merge("CMYK", (*planes, key)), "JPEG", quality=95))
    data[data.index(b"Adobe") + 11] = 2  # the transform byte: YCCK
    assert np.allclose(first_pixel(bytes(data)), RED, atol=30)


def test_grey_and_grey_with_alpha_become_three_equal_channels():
    assert first_pixel(encoded(solid("L", 77), "PNG")) == (77, 77, 77)
    assert first_pixel(encoded(solid("LA", (77, 9)), "PNG")) == (77, 77, 77)


def test_black_and_white_becomes_0_and_255():
    assert first_pixel(encoded(solid("1", 1), "PNG")) == (255, 255, 255)
    assert first_pixel(encoded(solid("1", 0), "PNG")) == (0, 0, 0)


def test_alpha_is_dropped_and_not_blended():
    assert first_pixel(encoded(solid("RGBA", (*RED, 0)), "PNG")) == RED


@pytest.mark.parametrize("transparency", [None, 0, b"\x00\x80\x10"])
def test_a_palette_becomes_its_colours_without_a_warning(transparency):
    image = photo().quantize(8)
    options = {} if transparency is None else {"transparency": transparency}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = decode_image(encoded(image, "PNG", **options))
    assert found.mode == "RGB"
    assert np.array_equal(found, image.convert("RGB"))


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(form):
    values = np.array([[0, 256, 128 * 256, 0xFFFF]], np.uint16)
    found = np.asarray(decode_image(encoded(Image.fromarray(values), form)))
    assert found[0, :, 0].tolist() == [0, 1, 128, 255]


def test_pixels_of_more_than_sixteen_bits_are_refused():
    data = encoded(Image.fromarray(np.full((2, 3), 70000, np.int32)), "TIFF")
    with pytest.raises(BadImageError, match="32 bits"):
        decode_image(data)


def test_floating_point_pixels_are_refused():
    data = encoded(Image.fromarray(np.full((2, 3), 0.5, np.float32)), "TIFF")
    with pytest.raises(BadImageError, match="floating-point"):
        decode_image(data)


def test_an_animation_gives_its_first_frame():
    frames = [solid(), solid(color=(0, 0, 255))]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.allclose(first_pixel(data), RED, atol=6)


def test_exif_orientation_is_ignored():
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    assert decode_image(encoded(photo(40, 60), "JPEG", exif=exif)).size == (60, 40)


@pytest.mark.parametrize("size", [(1, 1), (30000, 1)])
def test_extreme_shapes_are_fine(size):
    assert decode_image(encoded(Image.new("RGB", size), "PNG")).size == size


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["JPEG", "PNG", "BMP", "TIFF", "WEBP"])
def test_no_cut_of_a_file_crashes_or_passes_for_an_image(form):
    noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    data = encoded(Image.fromarray(noise), form)
    for length in range(0, len(data) * 9 // 10, 41):
        with pytest.raises(BadImageError):
            decode_image(data[:length])


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty"), (b"just text", "none of JPEG"), (b"<html><body>404</body></html>", "none of JPEG")],
)
def test_what_is_no_image_is_refused_with_path_and_reason(tmp_path, content, reason):
    path = tmp_path / "no image.jpg"
    path.write_bytes(content)
    with pytest.raises(BadImageError, match=reason) as caught:
        decode_image(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_formats_outside_the_list_are_refused():
    with pytest.raises(BadImageError, match="none of JPEG"):
        decode_image(encoded(solid(), "TGA"))


def test_a_decompression_bomb_is_refused():
    header = bytearray(encoded(solid("L", 0), "BMP"))
    header[18:26] = (100_000).to_bytes(4, "little") * 2
    with pytest.raises(BadImageError, match="bomb"):
        decode_image(bytes(header))


def test_missing_files_folders_and_pipes_are_refused(tmp_path):
    with pytest.raises(BadImageError, match="No such file"):
        decode_image(tmp_path / "gone.jpg")
    with pytest.raises(BadImageError, match="Is a directory"):
        decode_image(tmp_path)
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(BadImageError, match="not a regular file"):
        decode_image(tmp_path / "pipe.jpg")


def test_an_error_of_the_disk_is_a_bad_image(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    path.write_bytes(encoded(solid(), "PNG"))

    def broken(*_args, **_options):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Image, "open", broken)
    with pytest.raises(BadImageError, match="Input/output error"):
        decode_image(path)


def test_no_file_stays_open(tmp_path):
    for name, data in {
        "good.jpg": encoded(photo(), "JPEG"),
        "cut.jpg": encoded(photo(), "JPEG")[:-60],
        "text.jpg": b"text",
        "moving.gif": encoded(solid(), "GIF", save_all=True, append_images=[photo()]),
        "pages.tif": encoded(solid(), "TIFF", save_all=True, append_images=[photo()]),
    }.items():
        (tmp_path / name).write_bytes(data)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    kept = []
    for path in sorted(tmp_path.iterdir()):
        try:
            kept += [decode_image(path), image_size(path)]
        except BadImageError as error:
            kept.append(error)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_size_is_height_and_width_from_the_header_alone(tmp_path):
    path = tmp_path / "cut.jpg"
    path.write_bytes(encoded(photo(40, 60), "JPEG")[:700])
    assert image_size(path) == (40, 60)
    with pytest.raises(BadImageError):
        image_size(Path(tmp_path / "gone.jpg"))
