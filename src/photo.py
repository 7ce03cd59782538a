"""An image file of which training decodes no more than the part that it shows.

A JPEG is decoded from the top, and what lies below the part is left out: the decoder is told that the image
ends there. The pixels of the part stay what they are.

Of a JPEG that is much larger than what is asked for, the finest detail can be left out, too: libjpeg then
gives the image at 1/2, 1/4 or 1/8 of its size, each pixel in the place of the square that it stands for. This
is done as far as the part keeps as many pixels as the result has.
"""

from __future__ import annotations

import math

from PIL import Image

from src.image_io import BadImageError, Source, opened, to_rgb

START, END = b"\xff\xd8", b"\xff\xd9"  # of a JPEG
FRAMES = (0xC0, 0xC1, 0xC2)  # the headers of sequential and progressive JPEGs, coded by Huffman
FACTORS = (8, 4, 2)
STANDALONE = (0x00, 0x01, *range(0xD0, 0xDB), 0xFF)  # what no length follows, and the scan, where headers end
REACH = 3  # a filter sees so many pixels, of image or result, beside the part; Lanczos, the others fewer


class Photo:
    """Looks like a Pillow image that can only be resized.

    Attributes:
        width: in pixels.
        height: in pixels.
    """

    def __init__(self, source: Source, *, reduced: bool = False):
        """Read a file and its header.

        Args:
            source: path of the file, or its content.
            reduced: decode a JPEG at a reduced size where that suffices, which changes its pixels a little.

        Raises:
            BadImageError: see `decode_image`.
        """
        self._source, self._reduced = source, reduced
        with opened(source) as image:
            self.width, self.height = image.size
            image.fp.seek(0)
            self._content = image.fp.read()

    def resize(
        self, size: tuple[int, int], resample: int, box: tuple[float, float, float, float] | None = None
    ) -> Image.Image:
        """Return a part as an RGB image.

        Args:
            size: (width, height) of the result.
            resample: Pillow's filter.
            box: left, top, right and bottom of the part, by default all.

        Raises:
            BadImageError: see `decode_image`.
        """
        box = box or (0, 0, self.width, self.height)
        shrinking = min((box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1])
        factor = next((f for f in FACTORS if f <= shrinking), 1) if self._reduced else 1
        rows = math.ceil(box[3] + REACH * max(1, (box[3] - box[1]) / size[1]))
        content = cut_below(self._content, rows)
        try:
            image, factor = self._decoded(content, factor)
        except BadImageError:
            if content is self._content:
                raise
            image, factor = self._decoded(self._content, factor)  # what can be read as a whole is not broken
        return image.resize(size, resample, tuple(edge / factor for edge in box))

    def _decoded(self, content: bytes, factor: int) -> tuple[Image.Image, int]:
        """Return the image at 1 / `factor` of its size, or as it is, and what its sides were divided by."""
        with opened(self._source, content) as image:
            reduced = factor > 1 and image.draft(None, (image.width // factor, image.height // factor))
            return to_rgb(image), factor if reduced else 1


def cut_below(content: bytes, rows: int) -> bytes:
    """Return the JPEG with a header that promises at least `rows` rows, and no more than it must.

    The decoder skips what follows until the end of the file. A JPEG without an end, which is broken, or of a
    rare kind, and anything else, stay as they are.
    """
    place = len(START)
    if not (content.startswith(START) and content.endswith(END)):
        return content
    while place + 20 < len(content) and content[place] == 0xFF and content[place + 1] not in STANDALONE:
        length = int.from_bytes(content[place + 2 : place + 4], "big")
        if content[place + 1] in FRAMES:
            # length (2 bytes), bits (1), height (2), width (2), components (1), and 3 bytes for each of them
            height = int.from_bytes(content[place + 5 : place + 7], "big")
            unit = 8 * max(1, *(factors & 15 for factors in content[place + 11 : place + 2 + length : 3]))
            kept = (-(-rows // unit) + 1) * unit  # one unit more: colours are smoothed into the next
            if kept >= height:
                break
            return content[: place + 5] + kept.to_bytes(2, "big") + content[place + 7 :]
        place += 2 + length
    return content
