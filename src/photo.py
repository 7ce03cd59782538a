"""An image file of which training decodes no more than the part that it shows.

A JPEG is decoded from the top, and what lies below the part is left out: the decoder is told that the image
ends there. The pixels of the part stay what they are.

Of a JPEG that is much larger than what is asked for, the finest detail can be left out, too: libjpeg then
gives the image at 1/2, 1/4 or 1/8 of its size, each pixel in the place of the square that it stands for. This
is done as far as the part keeps as many pixels as the result has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from PIL import Image

from src.image_io import JPEG_START, BadImageError, Source, opened, read_jpeg, to_rgb
from src.pixels import Box

END = b"\xff\xd9"  # of a JPEG
PROGRESSIVE = 0xC2
FRAMES = (0xC0, 0xC1, PROGRESSIVE)  # the headers of JPEGs coded by Huffman
FACTORS = (8, 4, 2)
STANDALONE = (0x00, 0x01, *range(0xD0, 0xDB), 0xFF)  # what no length follows, and the scan, where headers end
GIANT = 2**26  # pixels from which Pillow may refuse an image as a decompression bomb
MAX_SIDE = 65_500  # of libjpeg
SMOOTHED = 2  # rows further down that colours of half the size are smoothed with
REACH = 3  # a filter sees so many pixels, of image or result, beside the part; Lanczos, the others fewer


class Photo:
    """A file that is decoded when it is known which part of it is shown, and how large.

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
        self._content = read_jpeg(source)
        self._frame = _find_frame(self._content) if self._content else None
        if self._frame:
            self.width, self.height = self._frame.width, self._frame.height
        else:
            with opened(source, self._content) as image:
                self.width, self.height = image.size

    def part(self, size: tuple[int, int], box: Box | None = None) -> tuple[Image.Image, Box]:
        """Decode what resizing a part of the image needs.

        Args:
            size: (height, width) that it will be resized to, by any of Pillow's filters.
            box: left, top, right and bottom of the part, by default all.

        Returns:
            An RGB image, and where the part is in it.

        Raises:
            BadImageError: see `decode_image`.
        """
        box = box or (0, 0, self.width, self.height)
        shrinking = min((box[2] - box[0]) / size[1], (box[3] - box[1]) / size[0])
        factor = next((f for f in FACTORS if f <= shrinking), 1) if self._reduced else 1
        rows = math.ceil(box[3] + REACH * max(1, (box[3] - box[1]) / size[0]))
        content = self._frame.cut_below(self._content, rows) if self._frame else self._content
        try:
            image, factor = self._decoded(content, factor)
        except BadImageError:
            if content is self._content:
                raise
            image, factor = self._decoded(self._content, factor)  # what can be read as a whole is not broken
        return image, tuple(edge / factor for edge in box)

    def _decoded(self, content: bytes | None, factor: int) -> tuple[Image.Image, int]:
        """Return the image at 1 / `factor` of its size, or as it is, and what its sides were divided by."""
        with opened(self._source, content) as image:
            reduced = factor > 1 and image.draft(None, (image.width // factor, image.height // factor))
            return to_rgb(image), factor if reduced else 1


@dataclass(frozen=True)
class _Frame:
    """What the header of a JPEG says of its pixels, and where."""

    place: int  # of the height, two bytes
    height: int
    width: int
    unit: int  # rows that are coded together
    below: int  # rows further down that pixels depend on

    def cut_below(self, content: bytes, rows: int) -> bytes:
        """Return the file with a header that promises at least `rows` rows, and no more than it must.

        The decoder skips what follows until the end of the file.
        """
        kept = -(-(rows + self.below) // self.unit) * self.unit
        if kept >= self.height:
            return content
        return content[: self.place] + kept.to_bytes(2, "big") + content[self.place + 2 :]


def _find_frame(content: bytes) -> _Frame | None:
    """Return None for what is no JPEG, or a rare kind, or a giant, or has no end, and so is broken."""
    place = len(JPEG_START)
    if not (content.endswith(END)):
        return None
    while place + 20 < len(content) and content[place] == 0xFF and content[place + 1] not in STANDALONE:
        length = int.from_bytes(content[place + 2 : place + 4], "big")
        if content[place + 1] in FRAMES:
            # length (2 bytes), bits (1), height (2), width (2), components (1), and 3 bytes for each of them
            height, width = (int.from_bytes(content[place + i : place + i + 2], "big") for i in (5, 7))
            unit = 8 * max([1, *(factors & 15 for factors in content[place + 11 : place + 2 + length : 3])])
            # libjpeg smooths the blocks of a progressive JPEG that lacks its last scans, two units deep
            below = 2 * unit if content[place + 1] == PROGRESSIVE else SMOOTHED
            if max(height, width) > MAX_SIDE or not 0 < height * width < GIANT:
                return None
            return _Frame(place + 5, height, width, unit, below)
        place += 2 + length
    return None
