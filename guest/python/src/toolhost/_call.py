"""What a call can do beside returning a result."""

import json
import sys

import _toolhost

ARGS, TOOL, CONTEXT, RESPONSE, SCRIPT = range(5)  # fields
RESULT, ERROR, MANIFEST, OUTPUT, STDERR, CONTENT = range(6)  # streams
LOG = {"debug": 8, "info": 9, "warn": 10, "error": 11}
STOPPING, REFUSED = 1, -3


class ToolError(Exception):
    """An error that the model reads, without the name of a type before it."""


class Canceled(BaseException):
    """The call is being stopped: clean up, and let it through."""


class ConnectionRequired(Exception):
    """The user has to connect something first, such as an account."""

    def __init__(self, provider, subject=None, setup_url=None):
        super().__init__(provider)
        parts = {"provider": provider, "subject": subject, "setup_url": setup_url}
        self.body = {k: v for k, v in parts.items() if v is not None}


class HostError(Exception):
    """An operation of the host has failed. code is denied, unknown, invalid, failed, limit,
    canceled, conflict or lost."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def encode(value):
    """JSON as bytes. What UTF-8 cannot hold, the half of a surrogate pair, is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def text(value):
    return str(value).encode("utf-8", "replace")


def flush():
    """Brings what was printed to the host, before anything else that it sees."""
    sys.stdout.flush()
    sys.stderr.flush()


def response(code):
    """The response of an operation that has ended with that code."""
    body = json.loads(_toolhost.read(RESPONSE) or b"{}")
    if code < 0:
        raise HostError(body.get("code", ""), body.get("message", ""))
    return body


class Operation:
    """An operation of the host that was started: `await` gives its response. Several run at
    the same time. A call that awaits takes up nothing meanwhile, and outlives its host."""

    def __init__(self, future, convert):
        self._future, self._convert = future, convert

    def __await__(self):
        answer = yield from self._future.__await__()
        return self._convert(answer)

    def cancel(self):
        """Ends the operation soon: who awaits it gets asyncio.CancelledError."""
        return self._future.cancel()


class Call:
    """The running call; `toolhost.call` is the only one. A parameter of a tool that has
    this type gets it too."""

    @property
    def context(self):
        """call_id, session, attempt, timeout_ms, fuel, locale and config of the call."""
        return json.loads(_toolhost.read(CONTEXT) or b"{}")

    @property
    def config(self):
        """What the operator has configured for the plugin."""
        return self.context.get("config", {})

    @property
    def tool(self):
        """The name of the tool that was called."""
        return (_toolhost.read(TOOL) or b"").decode()

    def progress(self, done, total=-1, message=""):
        """Reports how much is done; a negative total means that it is unknown. Raises
        Canceled once the call is being stopped."""
        flush()
        code = _toolhost.progress(float(done), float(total), text(message))
        if code == STOPPING:
            raise Canceled
        if code < 0:
            raise ValueError(f"progress of {done} of {total}")

    def report(self, status=None, unit=None, summary=None):
        """Says what the call is doing, the unit of its progress, and what came of it."""
        parts = {"status": status, "unit": unit, "summary": summary}
        self.host("report", {k: v for k, v in parts.items() if v is not None})

    def log(self, message, level="info"):
        """Writes to the operator's log: debug, info, warn or error."""
        _toolhost.write(LOG[level], text(message))

    def content(self, block):
        """Adds a block to the answer, such as {"type": "text", "text": "…"}. Raises ValueError
        if the host refuses it."""
        flush()
        if _toolhost.write(CONTENT, encode(block)) == REFUSED:
            body = json.loads(_toolhost.read(RESPONSE) or b"{}")
            raise ValueError(body.get("message", "the block is refused"))

    def image(self, data, mime_type="image/png"):
        """Adds an image to the answer, from bytes."""
        import base64

        self.content({"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type})

    def host(self, op, request=None):
        """Does an operation of the host, waits for it, and returns its response."""
        flush()
        return response(_toolhost.call(op, encode(request or {})))

    def start(self, op, request=None, convert=lambda answer: answer):
        """Starts an operation of the host: `await` it for its response."""
        import asyncio

        return Operation(asyncio.get_running_loop().start_operation(op, encode(request or {})), convert)

    def sleep(self, seconds):
        """Sleeps. In a coroutine, `await asyncio.sleep(seconds)`."""
        self.host("sleep", {"ms": max(0, round(seconds * 1000))})

    def ask(self, message, hint=str):
        """Puts a question to the user, and returns the answer, or None if the user gives none.
        hint is its type: str, int, float, bool, a Literal or Enum of texts, or a dataclass of
        these for a form."""
        request, convert = question(message, hint)
        return convert(self.host("ask", request))

    def start_ask(self, message, hint=str):
        """Starts a question to the user: `await` gives what ask returns."""
        return self.start("ask", *question(message, hint))

    def use(self, name, /, **args):
        """Calls another tool, by the name that agents know, and returns its value."""
        return value(name, self.host("tool.call", {"tool": name, "args": args}))

    def start_tool(self, name, /, **args):
        """Starts the call of another tool: `await` gives its value."""
        return self.start("tool.call", {"tool": name, "args": args}, lambda answer: value(name, answer))


call = Call()


def question(message, hint):
    """The request of a question, and what makes a value of its response."""
    from . import _schema

    form = _schema.is_dataclass(hint)
    schema = _schema.of(hint) if form else _schema.closed({"answer": _schema.of(hint)}, ["answer"])

    def convert(response):
        answer = response["answers"]["answer"]
        if answer["action"] != "accept":
            return None
        return _schema.build(hint, answer["content"] if form else answer["content"]["answer"])

    return {"questions": {"answer": {"message": message, "schema": schema}}}, convert


def value(name, answer):
    """The value of a tool that was called, or its error."""
    kind = answer["kind"]
    if kind == "success":
        return answer.get("value")
    if kind == "connection_required":
        raise ConnectionRequired(**answer["connection"])
    raise ToolError(f"{name}: {answer.get('error') or kind}")
