"""The plugin and its tools, as the script declares them."""

import re
import types
import typing

from . import _schema
from ._call import Call

manifest = {"abi": "toolhost_v1", "name": "tool", "version": "1.0.0", "description": ""}
tools = {}

HINTS = {"readonly", "idempotent", "destructive", "open_world", "supports_background", "long_running", "messages", "concurrency"}
LIMITS = {"timeout_seconds", "fuel", "memory_bytes", "output_bytes", "park_after_seconds", "background_seconds"}
FIELDS = {"title", "approval", "deferrable", "narrate", "examples"}

SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Yields|Raises|Examples?|Notes?):\s*$|^:(param|returns?|raises)\b", re.M)
ARGUMENT = re.compile(r"^\s*(?::param\s+)?\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


EMPTY = object()  # the default of a parameter that has none


class Parameter:
    def __init__(self, name, default):
        self.name, self.default, self.field = name, default, None
        if isinstance(default, _schema.Field):
            self.field = default
            self.default = EMPTY if default.default is _schema.MISSING else default.default


def parameters(name, f):
    """The parameters of a function, and what it wraps. inspect would be a fifth of start-up."""
    while hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    if not isinstance(f, types.FunctionType):
        raise TypeError(f"tool {name}: @tool is for functions")
    code = f.__code__
    positional, n = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    unnamed = code.co_varnames[: code.co_posonlyargcount] or code.co_varnames[n:][: bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)]
    if unnamed:
        raise TypeError(f"tool {name}: parameter {unnamed[0]} has no name that JSON could give")
    given = dict(zip(reversed(code.co_varnames[:positional]), reversed(f.__defaults__ or ()))) | (f.__kwdefaults__ or {})
    return [Parameter(p, given.get(p, EMPTY)) for p in code.co_varnames[:n]]


class Tool:
    """A function, what it takes, and what the manifest says of it."""

    def __init__(self, f, hints, entry, fixed, has_result):
        self.f, self.hints, self.entry = f, hints, entry
        self.fixed = fixed  # arguments that the function has not by itself: the call, defaults of Fields
        self.has_result = has_result  # also if that is None

    def __call__(self, args):
        """Calls the function with arguments of JSON: a result, or a coroutine."""
        given = {k: _schema.build(self.hints[k], v) for k, v in args.items()}
        return self.f(**self.fixed | given)


def plugin(name, *, version="1.0.0", description="", needs=None, **fields):
    """Names the plugin, and says what it needs: needs={"clock": True}, as in a manifest."""
    manifest.update(name=name, version=version, description=description, **fields)
    if needs:
        manifest["needs"] = needs


def tool(f=None, /, *, name=None, description=None, **options):
    """Makes a function a tool, and returns it. Its options are the hints readonly, idempotent,
    destructive, open_world, supports_background, long_running and messages; limits such as
    timeout_seconds; and title, narrate and examples, as in a manifest."""
    if f is None:
        return lambda f: tool(f, name=name, description=description, **options)
    unknown = options.keys() - HINTS - LIMITS - FIELDS
    if unknown:
        raise TypeError(f"@tool does not know {', '.join(sorted(unknown))}: it knows {', '.join(sorted(HINTS | LIMITS | FIELDS))}")

    name = name or f.__name__
    if name in tools:
        raise ValueError(f"there are two tools {name}")
    about, of_arguments = describe(f.__doc__ or "")
    properties, required, hints, fixed = {}, [], {}, {}
    resolved = typing.get_type_hints(f, include_extras=True)
    for p in parameters(name, f):
        hint = resolved.get(p.name, typing.Any)
        if hint is Call:
            from ._call import call

            fixed[p.name] = call
            continue
        hints[p.name] = hint
        properties[p.name] = parameter(name, p, hint, of_arguments.get(p.name))
        if p.default is EMPTY:
            required.append(p.name)
        elif p.field:
            fixed[p.name] = p.default

    entry = {"name": name, "description": description or about, "input_schema": _schema.closed(properties, required)}
    output = resolved.get("return", typing.Any)
    if (schema := result_schema(name, output)).get("type") == "object":
        entry["output_schema"] = schema
    entry |= {k: options[k] for k in FIELDS & options.keys()}
    for part, known in (("hints", HINTS), ("limits", LIMITS)):
        if chosen := {k: options[k] for k in sorted(known & options.keys())}:
            entry[part] = chosen
    tools[name] = Tool(f, hints, entry, fixed, "return" in resolved and output is not _schema.NONE)
    return f


def parameter(tool_name, p, hint, about):
    try:
        schema = _schema.of(hint)
        if p.field:
            _schema.annotated(schema, p.field)
        if p.default is not EMPTY and p.default is not None:
            schema["default"] = _schema.plain(p.default)
    except TypeError as e:
        raise TypeError(f"tool {tool_name}, parameter {p.name}: {e}") from None
    if about:
        schema.setdefault("description", about)
    return schema


def result_schema(tool_name, hint):
    try:
        return _schema.of(hint)
    except TypeError as e:
        raise TypeError(f"tool {tool_name}, result: {e}") from None


def describe(doc):
    """What a docstring says of the tool, and of each argument under Args or :param."""
    section = SECTION.search(doc)
    if not section:
        return " ".join(doc.split()), {}

    about, name, inside = {}, None, False
    for line in doc[section.start():].splitlines():
        if m := SECTION.match(line):
            inside = m[1] in ("Args", "Arguments", "Parameters") or m[2] == "param"
            if m[2] != "param":
                name = None
                continue
        if not inside or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if (m := ARGUMENT.match(line)) and (name is None or indent <= level):
            name, level = m[1], indent
            about[name] = m[2].strip()
        elif name:
            about[name] += " " + line.strip()
    return " ".join(doc[:section.start()].split()), about
