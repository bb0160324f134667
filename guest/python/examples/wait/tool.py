"""A wait: a coroutine takes up nothing while it waits, and a background run of it
outlives its host."""

import asyncio

from toolhost import call, plugin, tool

plugin("wait", description="Reminders.", needs={"clock": True})


@tool(readonly=True, supports_background=True)
async def remind(texts: list[str], seconds: float) -> list[str]:
    """Returns texts, each so many seconds after the one before."""
    done = []

    async def later(i, text):
        await asyncio.sleep(seconds * (i + 1))
        done.append(text)
        call.progress(len(done), len(texts))

    async with asyncio.TaskGroup() as group:
        for i, text in enumerate(texts):
            group.create_task(later(i, text))
    return done
