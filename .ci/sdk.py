"""Drives a Toolhost server with the official Python SDK, of the release that is
installed: 1.x speaks 2025-11-25, 2.x both eras. Called by sdks.sh.

sdk.py http URL | stdio PROGRAM CONFIG DATA   then   legacy | modern
"""
import contextlib, datetime, importlib.metadata, json, sys, time

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

release = importlib.metadata.version("mcp")
old = release.startswith("1.")
transport, era = sys.argv[1], sys.argv[-1]
if old:
    from mcp import types
    from mcp.client.streamable_http import streamable_http_client
else:
    import mcp_types as types
    from mcp import Client

checks = 0


def check(holds, what, *found):
    global checks
    if not holds:
        raise AssertionError(f"{what}: {found}")
    checks += 1


def endpoint():
    if transport == "http":
        return sys.argv[2]
    program, config, data = sys.argv[2:5]
    return StdioServerParameters(command=program, args=["mcp", "--config", config, "--data", data])


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.com"})


@contextlib.asynccontextmanager
async def connect():
    """A session, with the same few methods in each release."""
    if not old:
        async with Client(endpoint(), mode="legacy" if era == "legacy" else "auto", elicitation_callback=elicit) as client:
            check(client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28"), "protocol version", client.protocol_version)
            yield client
        return
    opened = streamable_http_client(endpoint()) if transport == "http" else stdio_client(endpoint())
    async with opened as (read, write, *_), ClientSession(read, write, elicitation_callback=elicit) as session:
        await session.initialize()
        yield session


def seconds(n):
    return datetime.timedelta(seconds=n) if old else n


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


def failed(result):
    return result.isError if old else result.is_error


def value(result):
    return result.structuredContent if old else result.structured_content


def answer(result):
    return json.loads(text(result))


async def tools(client):
    names = [tool.name for tool in (await client.list_tools()).tools]
    check({"echo", "fail", "spawn_background", "check_background", "stop_background"} <= set(names), "tools/list", names)


async def call(client):
    result = await client.call_tool("echo", {"message": "grüß"})
    check(value(result) == {"echoed": "grüß", "length": 6}, "echo", result)


async def error(client):
    result = await client.call_tool("fail", {"message": "no such city: Atlantis"})
    check(failed(result) and "no such city: Atlantis" in text(result), "an error of a tool", result)
    result = await client.call_tool("spawn_background", {"tool": "prime", "args": {}})
    check(failed(result) and "primes" in text(result), "a misspelt tool in spawn_background", result)


async def progress(client):
    heard = []

    async def hear(done, total, message):
        heard.append((done, total, message))

    result = await client.call_tool("test_tool_with_progress", {}, progress_callback=hear)
    check(text(result) == "three steps done" and heard, "progress", result, heard)


async def large(client):
    for size in (700_000, 2_000_000):
        result = await client.call_tool("echo", {"message": "x" * size})
        check(value(result) and value(result)["length"] == size, "a large result", size)


async def ask(client):
    result = await client.call_tool("test_elicitation", {"message": "Who are you?"})
    check("ada@example.com" in text(result), "a question", result)


async def background(client):
    spawned = answer(await client.call_tool("spawn_background", {"tool": "primes", "args": {"limit": 100000}}))
    ended = answer(await client.call_tool("check_background", {"task_id": spawned["task_id"], "wait_seconds": 40}))
    check(ended["status"] == "succeeded", "a background run", ended)
    spawned = answer(await client.call_tool("spawn_background", {"tool": "spin", "args": {}}))
    stopped = answer(await client.call_tool("stop_background", {"task_id": spawned["task_id"], "force": True}))
    check(stopped["status"] == "canceled", "a stop", stopped)


async def timeout(client):
    """A client that gives up. Release 1 says nothing to the server."""
    try:
        await client.call_tool("clock_sleep", {"seconds": 100}, read_timeout_seconds=seconds(1))
    except Exception as e:
        check("imed out" in str(e), "a timeout", e)
    else:
        raise AssertionError("the client should have given up")
    await call(client)  # the session goes on


async def close():
    """The end of a session while a call is in flight, which sleeps for 100 s."""
    started = time.monotonic()
    async with connect() as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "clock_sleep", {"seconds": 100})
            await anyio.sleep(1)
            group.cancel_scope.cancel()
    took = time.monotonic() - started
    check(took < 30, "seconds that the end of a session took", took)


async def main():
    for scenario in (tools, call, error, progress, large, ask, background, timeout):
        started = time.monotonic()
        async with connect() as client:
            await scenario(client)
        took = time.monotonic() - started
        check(took < 60, f"{scenario.__name__}: seconds with the end of its session", took)
    await close()
    print(f"mcp {release}, {transport}, {era}: {checks} checks passed")


anyio.run(main)
