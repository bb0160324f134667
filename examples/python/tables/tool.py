"""Tables and texts: a query over CSV, and statistics of a text."""

from dataclasses import dataclass
from typing import Annotated, Literal

import source
import statistics_of_text
import table
from toolhost import Field, plugin, tool

plugin("tables", version="1.0.0", description="Queries CSV, and measures texts.")

CITIES = "city,country,population\nLyon,FR,522250\nParis,FR,2102650\nRome,IT,2754719\n"

Given = Annotated[str | None, Field(description="The text itself, instead of a file", max_length=4_000_000)]
File = Annotated[str | None, Field(description="Name of a file in the folder /data, if the operator has granted one")]


@dataclass
class Condition:
    column: str
    op: Literal["=", "!=", "<", "<=", ">", ">=", "contains", "starts with", "ends with", "in", "empty", "not empty"]
    value: str | float | bool | list | None = None


@dataclass
class Aggregate:
    function: Literal["count", "sum", "mean", "median", "min", "max", "stdev", "distinct"]
    column: str | None = None
    name: str | None = None


@dataclass
class Rows:
    columns: list[str]
    types: list[Literal["integer", "number", "boolean", "date", "text", "empty"]]
    rows: list[list]
    total: int
    truncated: bool


@tool(
    readonly=True,
    idempotent=True,
    open_world=False,
    examples=[
        {"name": "columns, types and first rows", "args": {"csv": "id;price\n007;1.5\n008;\n"},
         "result": {"columns": ["id", "price"], "types": ["text", "number"], "rows": [["007", 1.5], ["008", None]], "total": 2, "truncated": False}},
        {"name": "filter and sort", "args": {"csv": CITIES, "select": ["city"], "where": [{"column": "population", "op": ">", "value": 1e6}], "sort": ["-population"]},
         "result": {"columns": ["city"], "types": ["text"], "rows": [["Rome"], ["Paris"]], "total": 2, "truncated": False}},
        {"name": "group", "args": {"csv": CITIES, "group_by": ["country"], "aggregate": [{"function": "sum", "column": "population", "name": "people"}], "sort": ["-people"], "limit": 1},
         "result": {"columns": ["country", "people"], "types": ["text", "integer"], "rows": [["IT", 2754719]], "total": 2, "truncated": True}},
        {"name": "a column that is missing", "args": {"csv": CITIES, "select": ["Population"]}, "error": 'no column "Population": did you mean "population"?'},
        {"name": "a text as a number", "args": {"csv": CITIES, "aggregate": [{"function": "mean", "column": "city"}]}, "error": 'mean needs numbers, and "city" is text'},
    ],
)
def query(
    csv: Given = None,
    file: File = None,
    select: Annotated[list[str] | None, Field(description="Columns to show; all if it is missing")] = None,
    where: Annotated[list[Condition], Field(description="Conditions, all of which hold")] = [],
    group_by: Annotated[list[str], Field(description="One row for each combination of values of these columns")] = [],
    aggregate: Annotated[list[Aggregate], Field(description="What to compute of each group, or of all rows; count needs no column", max_length=50)] = [],
    sort: Annotated[list[str], Field(description="Columns of the result or of the table; -NAME sorts downwards. Empty cells come last")] = [],
    limit: Annotated[int, Field(description="Most rows to show", ge=1, le=1000)] = 50,
    offset: Annotated[int, Field(description="Rows to skip", ge=0, le=10_000)] = 0,
    delimiter: Annotated[str | None, Field(description="Guessed if it is missing", min_length=1, max_length=1)] = None,
    encoding: Annotated[str, Field(description="Of the file")] = "utf-8",
) -> Rows:
    """Filters, groups, aggregates and sorts the rows of CSV, such as a spreadsheet saved as
    text. The first line has the names of the columns; types are guessed. Without more than
    the table it shows columns, types and the first rows. An answer has at most 100,000
    characters."""
    t = table.Table(source.Source(csv, file, encoding), delimiter)
    if group_by or aggregate:
        found = t.groups(where, group_by, aggregate, select)
    else:
        found = t.rows(where, select)
    return Rows(**found.page(sort, offset, limit))


@tool(
    readonly=True,
    idempotent=True,
    open_world=False,
    examples=[
        {"args": {"text": "The cat sat. The cat ran!", "top": 1},
         "result": {"characters": 25, "words": 6, "unique_words": 4, "sentences": 2, "paragraphs": 1, "words_per_sentence": 3.0, "characters_per_word": 3.0,
                    "frequencies": [{"word": "cat", "count": 2}], "flesch_reading_ease": 119.2, "flesch_kincaid_grade": -2.6}},
        {"args": {"text": " "}, "error": "no words"},
    ],
)
def text_statistics(
    text: Given = None,
    file: File = None,
    top: Annotated[int, Field(description="How many of the most frequent words to show", ge=0, le=500)] = 10,
    common: Annotated[bool, Field(description="Whether common English words, such as the, count among them")] = False,
    encoding: Annotated[str, Field(description="Of the file")] = "utf-8",
) -> statistics_of_text.Statistics:
    """Counts words, sentences and paragraphs of a text, its most frequent words, and how
    easily it reads: the Flesch scores, which are made for English."""
    return statistics_of_text.measure(source.Source(text, file, encoding), top, common)
