"""Tools for what the examples do not show."""

import asyncio
import datetime
import random
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

from toolhost import Call, ConnectionRequired, Field, HostError, call, http, plugin, tool

plugin("sdk", version="1.2.3", description="Tests.", needs={"clock": True, "random": True})


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Point:
    x: float
    y: float = 0


class Path(TypedDict):
    points: list[Point]
    closed: NotRequired[bool]


@dataclass
class Shape:
    path: Path
    tags: set[str] = field(default_factory=set)


class Metadata:  # in the form of pydantic's Field: constraints in a list
    description = "how many"
    metadata = [type("Ge", (), {"ge": 2})()]


@tool
def types(
    size: Size,
    shape: Shape | None,
    pair: tuple[int, str],
    when: datetime.date,
    mixed: int | Point | list[Point],
    names: Annotated[list[str], Field(min_length=1)],
    count: Annotated[int, Metadata()] = 2,
    limit: int = Field(7, description="at most", le=9),
    table: Optional[dict[str, Point]] = None,
    mode: Literal["a", 1] = "a",
) -> Any:
    """Shows what it gets.

    It tells the types too.

    :param size: how large
    :param pair: two
        things
    :returns: all of it
    """
    return [repr(v) for v in (size, shape, pair, when, mixed, names, count, limit, table, mode)]


@tool
def nulls() -> str | None:
    "Returns null."


@tool
def nans() -> float:
    "Returns what JSON has not."
    return float("nan")


@tool
def odd() -> Any:
    "Returns what JSON cannot hold."
    return {1: object()}


@tool
def chained(text: str):
    "Raises from another error."
    try:
        {}[text]
    except KeyError as e:
        raise ValueError("not\nfound") from e


@tool
async def cleanup(c: Call) -> list[str]:
    "Cancels what takes too long."
    log = []

    async def slow():
        try:
            await asyncio.sleep(3600)
        finally:
            log.append("cleaned")

    try:
        async with asyncio.timeout(0.5):
            await slow()
    except TimeoutError:
        log.append("timeout")
    log.append(c.tool)
    return log


@tool
async def together() -> Any:
    "Calls other tools at the same time, and one that fails."
    answers = await asyncio.gather(call.start_tool("double", n=1), call.start_tool("double", n=2))
    try:
        await call.start_tool("missing")
    except HostError as e:
        answers.append(e.code)
    return answers


@tool
def use() -> Any:
    "Calls another tool."
    return call.use("double", n=3)


@tool
def loop() -> Any:
    "Runs a loop of its own."

    async def main():
        await asyncio.sleep(0.05)
        return await asyncio.to_thread(lambda: 5)

    return asyncio.run(main())


@tool
def slept() -> bool:
    "Sleeps both ways."
    begin = time.monotonic()
    call.sleep(0.02)
    time.sleep(0.02)
    return time.monotonic() - begin >= 0.04


@tool
def chance() -> float:
    "Returns a random number."
    return random.random()


@tool
async def question() -> Any:
    "Asks."
    return [call.ask("How many?", int), repr(await call.start_ask("Where?", Point)), call.ask("No?", Literal["a", "b"])]


@tool
def platform() -> Any:
    "Tells where it runs."
    return [sys.platform, sys.version_info[:2], sysconfig.get_config_var("SOABI"), bool(sysconfig.get_config_vars())]


@tool
def fetch(url: str) -> Any:
    "Fetches in several ways."
    posted = http.post(url, json={"a": 1}, headers={"X-Test": "yes"})
    form = urllib.request.Request(url, data=b"a=b", headers={"X-Test": "urllib"})
    with urllib.request.urlopen(form) as answer:
        read = [answer.status, answer.headers["Content-Type"], answer.read().decode()]
    try:
        urllib.request.urlopen(url + "missing")
    except urllib.error.HTTPError as e:
        missing = e.code
    try:
        urllib.request.urlopen("https://denied.example/")
    except urllib.error.URLError as e:
        denied = str(e.reason).split(":")[0]
    with urllib.request.urlopen(url + "redirect") as answer:
        moved = answer.url.removeprefix(url)
    return [posted.status_code, posted.json(), read, missing, denied, moved]


@tool
def connect():
    "Needs an account."
    raise ConnectionRequired("github", setup_url="https://example.com/connect")


@tool
def quit(code: int):
    "Ends the program."
    print("bye")
    sys.exit(code)
