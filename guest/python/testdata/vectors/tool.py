"""The plugin of the contract vectors (abi/testdata), in Python."""

import os
import sys
from typing import Any, Literal, NotRequired, TypedDict

import _toolhost
import asyncio
from toolhost import Canceled, ConnectionRequired, HostError, ToolError, call, plugin, tool
from toolhost._call import Call

plugin("vectors", description="Does what the contract vectors ask for.")


@tool
def echo(value) -> Any:
    "Returns its value."
    return value


@tool
def nothing():
    "Returns no result."


@tool
def parts(parts: list[str], error: str = ""):
    "Writes its result in parts."
    for p in parts:
        _toolhost.write(0, p.encode())
    if error:
        raise ToolError(error)


@tool
def fail(text: str):
    "Ends with a tool error."
    raise ToolError(text)


@tool(name="panic")
def panics(text: str):
    "Aborts."
    print(text, file=sys.stderr)
    os.abort()


@tool
def connect(provider: str, subject: str | None = None, setup_url: str | None = None):
    "Requires a connection."
    raise ConnectionRequired(provider, subject, setup_url)


class Write(TypedDict):
    to: Literal["stdout", "stderr"]
    text: str


@tool
def output(writes: list[Write]):
    "Writes live output."
    for w in writes:
        _toolhost.write({"stdout": 3, "stderr": 4}[w["to"]], w["text"].encode())


@tool(name="print")
def prints(writes: list[Write]):
    "Writes live output by print."
    for w in writes:
        print(w["text"], end="", file=getattr(sys, w["to"]))


class Step(TypedDict, total=False):
    done: float
    total: float
    message: str


@tool
def progress(steps: list[Step]):
    "Reports progress."
    codes = []
    for step in steps:
        try:
            call.progress(**step)
            codes.append(0)
        except ValueError:
            codes.append(-4)
        except Canceled:
            codes.append(1)
    return {"codes": codes}


@tool
def content(blocks: list, error: str = "", why: bool = False):
    "Writes content blocks."
    codes, reasons = [], []
    for block in blocks:
        try:
            call.content(block)
            codes.append(0)
        except ValueError as e:
            codes.append(-3)
            reasons.append(str(e))
    if error:
        raise ToolError(error)
    return {"codes": codes} | ({"why": reasons} if why and reasons else {})


class Record(TypedDict):
    level: Literal["debug", "info", "warn", "error"]
    message: str


@tool
def log(records: list[Record]):
    "Writes log records."
    for r in records:
        call.log(r["message"], r["level"])


@tool
def write(stream: int, text: str):
    "Writes to a stream by its number."
    return {"codes": [_toolhost.write(stream, text.encode())]}


@tool
def facts(c: Call):
    "Returns the facts of the call."
    return {"tool": c.tool} | {k: v for k, v in c.context.items() if k in ("session", "attempt", "locale", "config")}


@tool
def script():
    "Tells whether there is a script."
    return {"absent": _toolhost.read(4) is None}


@tool
def host(op: str, request: Any):
    "Uses a host capability."
    return attempt(lambda: call.host(op, request))


def attempt(f):
    try:
        return {"response": f()}
    except HostError as e:
        return {"failure": e.code}


class Report(TypedDict, total=False):
    status: str
    unit: str
    summary: str
    done: float
    total: float


@tool
def report(reports: list[Report], error: str = ""):
    "Reports on itself."
    for r in reports:
        for part in ("status", "unit", "summary"):
            if part in r:
                call.report(**{part: r[part]})
                break
        else:
            call.progress(r.get("done", 0), r.get("total", 0))
    if error:
        raise ToolError(error)


@tool
def receive(count: int):
    "Receives messages."
    got, after, batch = [], 0, []
    for _ in range(count):
        if not batch:
            batch = call.host("messages.receive", {"after": after, "wait_ms": 0})["messages"]
        if not batch:
            got.append(None)
            continue
        after = batch[0]["id"]
        got.append(batch.pop(0)["message"])
    return got


class SessionStep(TypedDict, total=False):
    do: Literal["get", "set", "delete", "list"]
    key: str
    value: Any
    version: int


@tool
def session(steps: list[SessionStep]):
    "Uses the values of the session."
    return [attempt(lambda: one(**step)) for step in steps]


def one(do, **request):
    answer = call.host("session." + do, request)
    if do == "get":
        return {"version": 0, "value": None} | answer
    if do == "list":
        return answer["values"]
    return answer["version"] if do == "set" and "version" in request else None


@tool
def stop(finish: bool = False):
    "Reports progress until it is stopped."
    i = 0
    try:
        while True:
            call.progress(i)
            i += 1
    except Canceled:
        print("stopping")
        if not finish:
            raise
    return "finished"


class Operation(TypedDict):
    op: str
    request: Any
    cancel: NotRequired[bool]


@tool
async def wait(rounds: list[list[Operation]], quiet: bool = False, first: bool = False, error: str = ""):
    "Waits for operations."
    ends = []
    for round in rounds:
        results = [None] * len(round)
        ends.append(results)

        async def follow(i, operation):
            try:
                results[i] = {"response": await operation}
            except HostError as e:
                results[i] = {"failure": e.code}
            except asyncio.CancelledError:
                results[i] = {"failure": "canceled"}
            if not quiet:
                print(i)

        operations = [call.start(o["op"], o["request"]) for o in round]
        tasks = [asyncio.create_task(follow(i, operation)) for i, operation in enumerate(operations)]
        for operation, o in zip(operations, round):
            if o.get("cancel"):
                operation.cancel()
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED if first else asyncio.ALL_COMPLETED)
    if error:
        raise ToolError(error)
    return ends


@tool
async def stuck():
    "Waits for nothing."
    await asyncio.Event().wait()


@tool(name="exit")
def exits(code: int):
    "Exits."
    sys.exit(code)


calls = 0


@tool
def state():
    "Counts the calls of its instance."
    global calls
    calls += 1
    return calls
