"""Arguments: type hints are the schema, and what the function gets."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from toolhost import Field, plugin, tool

plugin("arguments", description="Plans meals.")


class Diet(Enum):
    ANY = "any"
    VEGAN = "vegan"


@dataclass
class Guest:
    name: str
    diet: Diet = Diet.ANY


@tool(readonly=True, idempotent=True, open_world=False)
def plan(
    guests: list[Guest],
    meal: Literal["lunch", "dinner"],
    courses: Annotated[int, Field(ge=1, le=5)] = 3,
    note: str | None = None,
) -> str:
    """Plans a meal.

    Args:
        guests: who comes, at least one
        meal: which meal of the day
        courses: how many courses
        note: what else matters
    """
    vegans = [g.name for g in guests if g.diet is Diet.VEGAN]
    text = f"{meal} for {len(guests)} in {courses} courses"
    if vegans:
        text += f", vegan for {' and '.join(vegans)}"
    return f"{text} ({note})" if note else text
