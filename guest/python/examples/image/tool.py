"""An image in the answer, beside the result."""

import struct
import zlib

from toolhost import call, plugin, tool

plugin("image", description="Colours.")


@tool(readonly=True, idempotent=True, open_world=False)
def swatch(red: int, green: int, blue: int) -> str:
    """Shows a colour, and returns its hexadecimal name."""
    row = b"\0" + bytes((red, green, blue)) * 16
    call.image(png(16, 16, row * 16))
    return f"#{red:02x}{green:02x}{blue:02x}"


def png(width, height, rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
