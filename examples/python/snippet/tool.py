"""The tool python: it runs a snippet that an agent has written."""

import ast
import io
import json
import linecache
import sys
import traceback
from typing import Annotated, Any

from toolhost import Canceled, Field, ToolError, plugin, tool

# Modules that snippets often import: loaded once, and not in each call.
import collections, csv, datetime, decimal, functools, itertools, math, random, re, statistics, textwrap  # noqa: E401, E402, F401

FILE = "<snippet>"
MAX_PRINTED = 16_000  # characters of what is printed that a snippet without a value answers with
MAX_FRAMES = 6

plugin("python", version="1.0.0", description="Runs snippets of Python.")


@tool(
    name="python",
    open_world=False,
    supports_background=True,
    examples=[
        {"args": {"code": "import statistics\nstatistics.median([3, 1, 2])"}, "result": 2},
        {"name": "what is printed, without a value", "args": {"code": "for i in range(3):\n    print(i * i)"}, "result": "0\n1\n4\n"},
        {"name": "nothing at all", "args": {"code": "x = 1"}, "result": ""},
        {"name": "values that JSON does not have", "args": {"code": "{1: {2, 3}, 'a': 1 + 2j}"}, "result": "{1: {2, 3}, 'a': (1+2j)}"},
        {"name": "an exception", "args": {"code": "def half(x):\n    return x / 0\n\nhalf(1)"}, "error": "line 2, in half\n    return x / 0"},
        {"name": "a syntax error", "args": {"code": "x = (1"}, "error": "SyntaxError: '(' was never closed"},
        {"name": "an exit", "args": {"code": "import sys\nsys.exit('no data')"}, "error": "SystemExit: no data"},
    ],
)
def run(code: Annotated[str, Field(description="The snippet. The value of its last expression is the result", max_length=200_000)]) -> Any:
    """Runs a snippet of Python 3.13 with its standard library, and answers with the value of
    the last expression as JSON, or else with what it printed. Each call begins anew. There
    are no threads, processes, sockets or packages of PyPI. If the operator grants a folder,
    it is at /data."""
    printed, names = Printed(sys.stdout), {"__name__": "__main__", "__file__": FILE}
    sys.stdout = printed
    try:
        value = evaluate(code, names)
    except SystemExit as e:
        if e.code not in (None, 0):
            raise ToolError(f"SystemExit: {e.code}") from None
        value = None
    except Canceled:
        raise
    except MemoryError as e:
        names.clear()  # what filled the memory: an explanation needs some
        traceback.clear_frames(e.__traceback__)
        raise ToolError(explain(e)) from None
    except BaseException as e:
        raise ToolError(explain(e)) from None
    finally:
        sys.stdout = printed.stream

    return printed.text() if value is None else value


def evaluate(code, names):
    """Runs the snippet, and returns the value of its last expression, or None."""
    linecache.cache[FILE] = (len(code), None, code.splitlines(True), FILE)  # for tracebacks
    tree = ast.parse(code, FILE)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None

    exec(compile(tree, FILE, "exec", dont_inherit=True), names)
    if last is None:
        return None
    return of_json(eval(compile(ast.Expression(last.value), FILE, "eval", dont_inherit=True), names))


def of_json(value):
    """The value if JSON has it, else its text."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value if only_texts(value) else repr(value)


def only_texts(value):
    """Whether the keys of all dictionaries are texts: JSON would make texts of others."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and only_texts(v) for k, v in value.items())
    return not isinstance(value, (list, tuple)) or all(map(only_texts, value))


def explain(e):
    """Type and message of an exception, with the lines of the snippet that led there."""
    lines = traceback.TracebackException(type(e), e, e.__traceback__, limit=-200)
    frames = [f for f in lines.stack if f.filename == FILE]
    left_out = len(frames) - MAX_FRAMES
    shown = traceback.StackSummary.from_list(frames[-MAX_FRAMES:])
    text = "".join(lines.format_exception_only()).strip()
    if len(text) > 2000:
        text = text[:2000] + " …"
    where = "".join(shown.format()).replace(f'File "{FILE}", ', "")

    if not frames:
        return text
    return "".join([f"{text}\n", f"  … {left_out} more\n" if left_out > 0 else "", where]).rstrip()


class Printed(io.TextIOBase):
    """Passes on what is printed, which is the live output, and keeps its beginning."""

    def __init__(self, stream):
        self.stream, self.kept, self.length = stream, [], 0

    def write(self, text):
        if self.length < MAX_PRINTED:
            self.kept.append(text[: MAX_PRINTED - self.length])
        self.length += len(text)
        return self.stream.write(text)

    def flush(self):
        self.stream.flush()

    def text(self):
        more = self.length - MAX_PRINTED
        return "".join(self.kept) + (f"\n… and {more} more characters" if more > 0 else "")
