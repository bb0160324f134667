"""CSV as a table: it is read row by row, so that a large file needs little memory."""

import csv
import difflib
import heapq
import json
import math
import re

from toolhost import ToolError

DELIMITERS = ",;\t|"
MAX_CHARACTERS = 100_000  # of the rows of an answer, as JSON
MAX_CELL = 2_000  # characters that are shown of a cell
MAX_GROUPS = 50_000

INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)?(\.\d+|(?<=\d)\.?)([eE][+-]?\d{1,3})?")
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")
BOOLEANS = {"true": True, "false": False}
KINDS = {  # from the narrowest: what its cells look like, and their values
    "boolean": (lambda s: s.lower() in BOOLEANS, lambda s: BOOLEANS[s.lower()]),
    "integer": (INTEGER.fullmatch, int),
    "number": (NUMBER.fullmatch, float),
    "date": (DATE.fullmatch, str),  # ISO 8601 sorts as text
    "text": (lambda s: True, str),
}
NUMERIC = ("integer", "number")

csv.field_size_limit(1_000_000)


class Table:
    def __init__(self, source, delimiter):
        self.source = source
        self.delimiter = delimiter or guess_delimiter(next(source.lines(), ""))
        self.names = unique([name.strip() for name in next(self.cells(), [])])
        if not any(self.names):
            raise ToolError("the table has no header: its first line has the names of the columns")
        self.types = self.guess_types()

    def cells(self):
        """The rows as texts, the header first; lines without anything are left out."""
        reader = csv.reader(self.source.lines(), delimiter=self.delimiter)
        try:
            yield from (row for row in reader if row)
        except csv.Error as e:
            raise ToolError(f"line {reader.line_num} is not CSV: {e}") from None

    def records(self):
        """The rows of the table as texts, each with a cell for each column."""
        width, rows = len(self.names), self.cells()
        next(rows)
        for n, row in enumerate(rows, 1):
            if len(row) > width:
                raise ToolError(f"row {n} has {len(row)} cells, and the header {width}: is the delimiter {self.delimiter!r}?")
            yield row + [""] * (width - len(row))

    def guess_types(self):
        """The narrowest type that fits all cells of a column which are not empty."""
        kinds, of_column = list(KINDS), [None] * len(self.names)
        for row in self.records():
            for i, cell in enumerate(row):
                cell = cell.strip()
                if not cell or of_column[i] == "text":
                    continue
                kind = of_column[i]
                if kind is None:
                    kind = next(k for k in kinds if KINDS[k][0](cell))
                elif kind == "integer" and not INTEGER.fullmatch(cell):
                    kind = "number" if NUMBER.fullmatch(cell) else "text"
                elif not KINDS[kind][0](cell):
                    kind = "text"
                of_column[i] = kind
        return [kind or "empty" for kind in of_column]

    def column(self, name):
        """The index of a column."""
        if name in self.names:
            return self.names.index(name)
        raise ToolError(no_column(name, self.names))

    def values(self, where):
        """The rows that fit all conditions, as values."""
        tests = [self.test(c) for c in where]
        makers = [KINDS.get(kind, KINDS["text"])[1] for kind in self.types]
        for row in self.records():
            row = [make(cell.strip() if make is not str else cell) if cell.strip() else None for make, cell in zip(makers, row)]
            if all(fits(row) for fits in tests):
                yield row

    def test(self, condition):
        """Whether a row fits a condition, as a function."""
        i, op, value = self.column(condition.column), condition.op, condition.value
        kind = self.types[i]
        if op in ("empty", "not empty"):
            return lambda row: (row[i] is None) == (op == "empty")
        if value is None:
            raise ToolError(f'the condition {op} on "{condition.column}" needs a value')
        if op == "in":
            if not isinstance(value, list):
                raise ToolError("the condition in needs a list of values")
            value = [self.comparable(condition.column, kind, v) for v in value]
            return lambda row: row[i] in value
        if isinstance(value, list):
            raise ToolError(f"the condition {op} needs one value; in takes a list")

        if op in ("contains", "starts with", "ends with"):
            part = str(value).casefold()
            find = {"contains": str.__contains__, "starts with": str.startswith, "ends with": str.endswith}[op]
            return lambda row: row[i] is not None and find(str(row[i]).casefold(), part)

        value = self.comparable(condition.column, kind, value)
        compare = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[op]
        if op == "!=":
            return lambda row: row[i] != value
        return lambda row: row[i] is not None and getattr(row[i], compare)(value) is True

    def comparable(self, name, kind, value):
        """A value as the cells of a column have it."""
        if kind in NUMERIC:
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise ToolError(f'"{name}" has numbers: {value!r} is not one') from None
            return int(number) if kind == "integer" and number.is_integer() else number
        if kind == "boolean":
            if str(value).lower() not in BOOLEANS:
                raise ToolError(f'"{name}" is true or false: {value!r} is neither')
            return BOOLEANS[str(value).lower()]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return str(value)

    def rows(self, where, select):
        """What a query without groups finds."""
        chosen = [self.column(name) for name in (self.names if select is None else select)]
        return Found(self.names, self.types, self.values(where), chosen)

    def groups(self, where, group_by, aggregate, select):
        """What a query with groups finds: a row for each."""
        keys = [self.column(name) for name in group_by]
        measures = [Measure(self, a.function, a.column, a.name) for a in aggregate] or [Measure(self, "count")]
        names = unique(group_by + [m.name for m in measures])
        found = {}
        if not keys:
            found[()] = [m.start() for m in measures]
        for row in self.values(where):
            key = tuple(row[i] for i in keys)
            states = found.get(key)
            if states is None:
                if len(found) == MAX_GROUPS:
                    raise ToolError(f"there are more than {MAX_GROUPS} groups")
                states = found[key] = [m.start() for m in measures]
            for m, state in zip(measures, states):
                m.add(state, row)

        rows = ([*key, *(m.end(s) for m, s in zip(measures, states))] for key, states in found.items())
        types = [self.types[i] for i in keys] + [m.type for m in measures]
        chosen = range(len(names)) if select is None else [names.index(n) if n in names else missing(n, names) for n in select]
        return Found(names, types, rows, chosen)


class Measure:
    """An aggregate of the values of a column; the median and distinct values are kept in memory."""

    def __init__(self, table, function, column=None, name=None):
        self.function, self.i, self.type = function, None, "integer"
        if column is not None:
            self.i = table.column(column)
        elif function != "count":
            raise ToolError(f"{function} needs a column")
        self.name = name or (function if column is None else f"{function} {column}")

        kind = table.types[self.i] if self.i is not None else None
        if function in ("sum", "mean", "median", "stdev"):
            if kind not in NUMERIC and kind != "empty":
                raise ToolError(f'{function} needs numbers, and "{column}" is {kind}')
            self.type = "integer" if function == "sum" and kind == "integer" else "number"
        elif function in ("min", "max"):
            self.type = kind

    def start(self):
        match self.function:
            case "distinct":
                return set()
            case "median":
                return []
            case "min" | "max":
                return [None]
        return [0, 0, 0.0]  # how many; their sum or mean; what rounding lost, or the sum of squared differences

    def add(self, state, row):
        value = True if self.i is None else row[self.i]
        if value is None:
            return
        match self.function:
            case "distinct":
                state.add(value)
            case "median":
                state.append(value)
            case "min":
                state[0] = value if state[0] is None else min(state[0], value)
            case "max":
                state[0] = value if state[0] is None else max(state[0], value)
            case "stdev":  # as Welford computes it
                state[0] += 1
                difference = value - state[1]
                state[1] += difference / state[0]
                state[2] += difference * (value - state[1])
            case _:
                state[0] += 1
                total = state[1] + value
                if isinstance(total, float):  # as Neumaier sums
                    state[2] += (state[1] - total) + value if abs(state[1]) >= abs(value) else (value - total) + state[1]
                state[1] = total

    def end(self, state):
        match self.function:
            case "distinct":
                return len(state)
            case "count" | "min" | "max":
                return state[0]
            case "median":
                state.sort()
                n = len(state)
                return None if not n else state[n // 2] if n % 2 else finite((state[n // 2 - 1] + state[n // 2]) / 2)
            case "stdev":
                return finite(math.sqrt(state[2] / (state[0] - 1))) if state[0] > 1 else None
            case "sum":
                return state[1] if self.type == "integer" else finite(state[1] + state[2])
            case "mean":
                return finite((state[1] + state[2]) / state[0]) if state[0] else None


class Found:
    """Rows of a query, and which of their columns it shows."""

    def __init__(self, names, types, rows, chosen):
        self.names, self.types, self.all, self.chosen = names, types, rows, list(chosen)

    def page(self, sort, offset, limit):
        """The part of an answer: sorted rows from offset on, as many as fit."""
        keys = []
        for name in sort:
            down = name not in self.names and name.startswith("-")
            name = name[1:] if down else name
            keys.append((self.names.index(name) if name in self.names else missing(name, self.names), down))
        total, counted = 0, self.all

        def count():
            nonlocal total
            for row in counted:
                total += 1
                yield row

        if keys:
            first = heapq.nsmallest(offset + limit, count(), key=lambda row: [Key(row[i], down) for i, down in keys])
        else:
            first = [row for n, row in enumerate(count()) if n < offset + limit]

        rows, room = [], MAX_CHARACTERS
        for row in first[offset:]:
            row = [shown(row[i]) for i in self.chosen]
            room -= len(json.dumps(row, ensure_ascii=False))
            if room < 0:
                break
            rows.append(row)
        return {
            "columns": [self.names[i] for i in self.chosen],
            "types": [self.types[i] for i in self.chosen],
            "rows": rows,
            "total": total,
            "truncated": offset + len(rows) < total,
        }


class Key:
    """A value for sorting: upwards or downwards, and None last."""

    __slots__ = ("value", "down")

    def __init__(self, value, down):
        self.value, self.down = value, down

    def __eq__(self, other):
        return self.value == other.value

    def __lt__(self, other):
        if self.value is None or other.value is None:
            return self.value is not None
        return other.value < self.value if self.down else self.value < other.value


def shown(value):
    if isinstance(value, str) and len(value) > MAX_CELL:
        return value[:MAX_CELL] + f"… ({len(value)} characters)"
    return finite(value) if isinstance(value, float) else value


def finite(x):
    return x if math.isfinite(x) else str(x)


def guess_delimiter(header):
    """The character that most often separates names in the header."""
    outside = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS, key=outside.count)


def unique(names):
    """The names, with a number at those that were there before or are empty."""
    out = []
    for i, name in enumerate(names, 1):
        name = name or f"column {i}"
        n, candidate = 2, name
        while candidate in out:
            n, candidate = n + 1, f"{name} {n}"
        out.append(candidate)
    return out


def no_column(name, names):
    close = difflib.get_close_matches(name.casefold(), [n.casefold() for n in names], 1)
    if close:
        return f'no column "{name}": did you mean "{next(n for n in names if n.casefold() == close[0])}"?'
    return f'no column "{name}": the columns are {", ".join(names[:50])}' + (", …" if len(names) > 50 else "")


def missing(name, names):
    raise ToolError(no_column(name, names))
