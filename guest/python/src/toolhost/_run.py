"""What the host calls: start-up, describing, a call and its continuation."""

import json
import linecache
import sys
import traceback
import types

import _toolhost

from . import _schema, _tools
from ._call import (ARGS, ERROR, LOG, MANIFEST, RESULT, SCRIPT, Canceled, ConnectionRequired, HostError, ToolError, call,
                    encode, flush, text)

SUCCESS, FAILED, BROKEN, CONNECT, WAITS = range(5)  # what the exports return
FILE = "tool.py"
OURS = ("<toolhost>", "<frozen importlib")  # files of frames that tell an author nothing

problem = None  # what the script raised when it was loaded
loop = task = tool = None  # of a call that is a coroutine


def boot():
    """Loads the script, and does once what every call needs."""
    global problem
    sys.stdout.reconfigure(line_buffering=True)
    script = _toolhost.read(SCRIPT)
    if script is None:
        return
    try:
        load(script)
    except BaseException as e:
        problem = report(e)

    encode(json.loads('{"a": [1, "b", null, 1.5]}'))
    traceback.format_exception(ValueError("x"))
    import gc

    gc.collect()
    gc.freeze()  # the collector leaves alone what is there, so that a call changes little memory


def load(script):
    """Runs the script: the text of tool.py, or an archive that has it and what it imports."""
    if script.startswith(b"PK"):
        from . import _archive

        script = _archive.install(script)
    source = script.decode()
    module = types.ModuleType("tool")
    module.__file__ = FILE
    sys.modules["tool"] = module
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    exec(compile(source, FILE, "exec", dont_inherit=True), module.__dict__)
    if any(is_coroutine_function(t.f) for t in _tools.tools.values()):
        import asyncio  # when the script has not


def is_coroutine_function(f):
    return isinstance(f, types.FunctionType) and f.__code__.co_flags & 0x80


def report(e):
    """The traceback of an exception, as far as it is the author's."""
    tb = e.__traceback__
    while tb and not mine(tb):
        tb = tb.tb_next
    lines = traceback.TracebackException(type(e), e, tb or e.__traceback__, limit=-20)
    lines.stack = traceback.StackSummary.from_list([f for f in lines.stack if not f.filename.startswith(OURS)])
    return "".join(lines.format())


def mine(tb):
    return not tb.tb_frame.f_code.co_filename.startswith("<")


def describe():
    if problem:
        _toolhost.write(ERROR, text(problem))
        return FAILED
    _toolhost.write(MANIFEST, encode(_tools.manifest | {"tools": [t.entry for t in _tools.tools.values()]}))
    return SUCCESS


def invoke():
    global loop, task, tool
    try:
        if problem:
            raise ToolError(f"{FILE} cannot be loaded:\n{problem}")
        tool = _tools.tools[call.tool]
        result = tool(json.loads(_toolhost.read(ARGS) or b"{}"))
        if not isinstance(result, types.CoroutineType):
            return succeed(result)

        import asyncio

        loop = asyncio.EventLoop()
        task = loop.create_task(result)
    except BaseException as e:
        return fail(e)
    return go_on()


def resume(id, code):
    try:
        loop.ended(id, code)
    except BaseException as e:
        return fail(e)
    return go_on()


def go_on():
    """Runs the coroutine until it has ended, or waits for the host."""
    try:
        waits = loop.run(task)
        flush()
        return WAITS if waits else succeed(task.result())
    except BaseException as e:
        return fail(e)


def succeed(result):
    if result is not None or tool.has_result:
        _toolhost.write(RESULT, encode(_schema.plain(result)))
    else:
        _toolhost.write(RESULT, b"")
    flush()
    return SUCCESS


def fail(e):
    """Tells how the call has failed: the model gets type and message, the log the traceback."""
    if isinstance(e, SystemExit):
        leave(e.code)
    flush()
    if isinstance(e, ConnectionRequired):
        _toolhost.write(ERROR, encode(e.body))
        return CONNECT
    if isinstance(e, ToolError):
        _toolhost.write(ERROR, text(e))
        return FAILED
    if isinstance(e, Canceled) or type(e).__name__ == "CancelledError" or isinstance(e, HostError) and e.code == "canceled":
        _toolhost.write(ERROR, b"canceled")
        return FAILED
    _toolhost.write(LOG["error"], text(report(e)))
    if type(e).__name__ == "Stuck":
        return BROKEN
    message = "\n".join([str(e), *getattr(e, "__notes__", ())])
    _toolhost.write(ERROR, text(f"{type(e).__name__}: {message}" if message else type(e).__name__))
    return FAILED


def leave(code):
    """Ends the program as sys.exit does."""
    import os

    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    flush()
    os._exit(code or 0)


def restored():
    if random := sys.modules.get("random"):
        random.seed()
    return SUCCESS
