"""Errors: the model reads a ToolError as it is, and any other exception with its type."""

from toolhost import ToolError, plugin, tool

plugin("error", description="Capitals.")

CAPITALS = {"France": "Paris", "Japan": "Tokyo"}


@tool(readonly=True, idempotent=True, open_world=False)
def capital(country: str) -> str:
    """Returns the capital of a country."""
    if country not in CAPITALS:
        raise ToolError(f"no capital of {country}: there are {', '.join(CAPITALS)}")
    return CAPITALS[country]


@tool(readonly=True, idempotent=True, open_world=False)
def ratio(a: float, b: float) -> float:
    """Divides a by b."""
    return a / b
