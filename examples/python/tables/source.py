"""Where a text comes from: the call itself, or a file of the granted folder."""

import io
import os

from toolhost import ToolError

FOLDER = "/data"


class Source:
    """A text that can be read several times, line by line."""

    def __init__(self, text, file, encoding):
        if (text is None) == (file is None):
            raise ToolError("give either the text itself or a file")
        self.text, self.file, self.encoding = text, file, encoding

    def open(self):
        """Opens it from its beginning."""
        if self.text is not None:
            return io.StringIO(self.text.removeprefix("\ufeff"), newline="")
        encoding = "utf-8-sig" if self.encoding.lower() in ("utf-8", "utf8") else self.encoding
        try:
            return open(os.path.join(FOLDER, self.file), encoding=encoding, newline="")
        except LookupError:
            raise ToolError(f"unknown encoding {self.encoding}: utf-8, latin-1 and cp1252 are usual") from None
        except OSError as e:
            raise ToolError(self.missing(e)) from None

    def lines(self):
        """Its lines, as often as it is called."""
        with self.open() as f:
            try:
                yield from f
            except UnicodeDecodeError as e:
                raise ToolError(f"{self.file} is not {self.encoding} at byte {e.start}: give its encoding, such as latin-1") from None

    def missing(self, e):
        try:
            names = sorted(os.listdir(FOLDER))
        except OSError:
            return f"cannot read {self.file}: no folder is granted as {FOLDER}; give the text itself, or ask the operator to grant one"
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        return f"cannot read {self.file} in {FOLDER}: {e.strerror}; there are: {shown or 'no files'}"
