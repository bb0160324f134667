"""A result: what JSON can hold, with a schema if its type says one."""

import statistics
from dataclasses import dataclass

from toolhost import plugin, tool

plugin("result", description="Statistics.")


@dataclass
class Summary:
    count: int
    mean: float
    median: float


@tool(readonly=True, idempotent=True, open_world=False)
def summarize(numbers: list[float]) -> Summary:
    """Counts numbers, and computes their mean and median."""
    return Summary(len(numbers), statistics.fmean(numbers), statistics.median(numbers))
