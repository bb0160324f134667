"""JSON Schema of type hints, and values between JSON and what the hints say."""

import types
import typing

NONE = type(None)
MISSING = object()
SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", NONE: "null"}

# The keywords of Field and of the annotations that others write, by their attributes.
KEYWORDS = {
    "title": "title", "description": "description", "examples": "examples", "ge": "minimum", "gt": "exclusiveMinimum",
    "le": "maximum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf", "min_length": "minLength",
    "max_length": "maxLength", "pattern": "pattern", "format": "format",
}
OF_ARRAYS = {"minLength": "minItems", "maxLength": "maxItems"}


class Field:
    """Says more of a parameter than its type: Annotated[int, Field(ge=1)], or as its default."""

    def __init__(self, default=MISSING, **keywords):
        unknown = keywords.keys() - KEYWORDS.keys()
        if unknown:
            raise TypeError(f"Field does not know {', '.join(sorted(unknown))}: it knows {', '.join(KEYWORDS)}")
        self.default = default
        self.__dict__.update(keywords)


def annotated(schema, note):
    """Adds what an annotation says: text, a part of the schema, or attributes as those of Field."""
    if isinstance(note, str):
        schema["description"] = note
    elif isinstance(note, dict):
        schema.update(note)
    else:
        for inner in getattr(note, "metadata", ()):  # of pydantic
            annotated(schema, inner)
        for attribute, keyword in KEYWORDS.items():
            v = getattr(note, attribute, None)
            if v is not None and not callable(v):
                schema[OF_ARRAYS.get(keyword, keyword) if schema.get("type") == "array" else keyword] = v
    return schema


def is_dataclass(t):
    return isinstance(t, type) and "__dataclass_fields__" in t.__dict__


def is_enum(t):
    return isinstance(t, type) and hasattr(t, "__members__")


def is_time(t):
    return isinstance(t, type) and t.__module__ == "datetime" and hasattr(t, "fromisoformat")


def required(field):
    import dataclasses

    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def closed(properties, names):
    schema = {"type": "object", "properties": properties}
    if names:
        schema["required"] = names
    return schema | {"additionalProperties": False}


def of(t):
    """The schema of a type; TypeError says which type has none."""
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin is typing.Annotated:  # first: its notes need not be hashable
        schema = of(args[0])
        for note in args[1:]:
            annotated(schema, note)
        return schema
    if t in (typing.Any, object):
        return {}
    if isinstance(t, typing.TypeAliasType):
        return of(t.__value__)
    if origin in (typing.Required, typing.NotRequired, typing.ReadOnly):
        return of(args[0])
    if t in SIMPLE:
        return {"type": SIMPLE[t]}
    if origin in (typing.Union, types.UnionType):
        return union([of(a) for a in args])
    if origin is typing.Literal:
        return choice(list(args))
    if is_enum(t):
        return choice([m.value for m in t])
    return compound(t, origin or t, args)


def compound(t, origin, args):
    if origin is tuple and args and args[-1] is not ...:
        return {"type": "array", "prefixItems": [of(a) for a in args], "minItems": len(args), "maxItems": len(args)}
    if origin in (list, tuple, set, frozenset):
        schema = {"type": "array"}
        if args:
            schema["items"] = of(args[0])
        return schema | ({"uniqueItems": True} if origin in (set, frozenset) else {})
    if origin is dict:
        return {"type": "object"} | ({"additionalProperties": of(args[1])} if args else {})
    if typing.is_typeddict(t):
        hints = typing.get_type_hints(t, include_extras=True)
        return closed({k: of(v) for k, v in hints.items()}, [k for k in hints if k in t.__required_keys__])
    if is_dataclass(t):
        import dataclasses

        hints, fields = typing.get_type_hints(t, include_extras=True), dataclasses.fields(t)
        properties = {f.name: of(hints[f.name]) for f in fields}
        for f in fields:
            if f.default is not dataclasses.MISSING and f.default is not None:
                properties[f.name]["default"] = plain(f.default)
        return closed(properties, [f.name for f in fields if required(f)])
    if is_time(t):
        return {"type": "string", "format": {"datetime": "date-time"}.get(t.__name__, t.__name__)}
    raise TypeError(f"no JSON Schema for {getattr(t, '__name__', t)}")


def union(schemas):
    """One type of several where that says it all, else a choice."""
    if all(s.keys() == {"type"} for s in schemas):
        return {"type": [s["type"] for s in schemas]}
    return {"anyOf": schemas}


def choice(values):
    names = {SIMPLE.get(type(v)) for v in values}
    return ({"type": names.pop()} if len(names) == 1 and None not in names else {}) | {"enum": values}


def build(t, v):
    """What the hint says of a value of JSON that fits its schema."""
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.ReadOnly):
        return build(args[0], v)
    if t in SIMPLE or t in (typing.Any, object):
        return float(v) if t is float and isinstance(v, int) and not isinstance(v, bool) else v
    if isinstance(t, typing.TypeAliasType):
        return build(t.__value__, v)
    if origin in (typing.Union, types.UnionType):
        return next((build(a, v) for a in args if fits(a, v)), v)
    if is_enum(t):
        return t(v)
    if is_time(t):
        return t.fromisoformat(v)
    if is_dataclass(t):
        hints = typing.get_type_hints(t, include_extras=True)
        return t(**{k: build(hints[k], x) for k, x in v.items()})
    if typing.is_typeddict(t):
        hints = typing.get_type_hints(t, include_extras=True)
        return {k: build(hints[k], x) for k, x in v.items()}
    kind = origin or t
    if kind is tuple and args and args[-1] is not ...:
        return tuple(build(a, x) for a, x in zip(args, v))
    if kind in (list, tuple, set, frozenset):
        return kind(build(args[0], x) for x in v) if args else kind(v)
    if kind is dict and args:
        return {k: build(args[1], x) for k, x in v.items()}
    return v


def fits(t, v):
    """Whether a value is of that part of a union, as far as its form tells."""
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin is typing.Annotated:
        return fits(args[0], v)
    if origin is typing.Literal:
        return any(v == a and type(v) is type(a) for a in args)
    if is_enum(t):
        return any(v == m.value for m in t)
    if is_dataclass(t):
        import dataclasses

        names = {f.name: required(f) for f in dataclasses.fields(t)}
        return isinstance(v, dict) and v.keys() <= names.keys() and all(k in v for k, needed in names.items() if needed)
    if typing.is_typeddict(t):
        return isinstance(v, dict) and t.__required_keys__ <= v.keys() <= t.__annotations__.keys()
    if is_time(t):
        return isinstance(v, str)
    if t is float:
        return isinstance(v, (int, float)) and not isinstance(v, bool)
    if t is int:
        return isinstance(v, int) and not isinstance(v, bool)
    kind = origin or t
    return isinstance(v, list if kind in (tuple, set, frozenset) else kind) if isinstance(kind, type) else True


def plain(v):
    """JSON's form of a value."""
    if v is None or isinstance(v, (str, bool, int, float)) and not is_enum(type(v)):
        return v
    if is_enum(type(v)):
        return plain(v.value)
    if is_dataclass(type(v)):
        return {k: plain(getattr(v, k)) for k in v.__dataclass_fields__}
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple, set, frozenset)):
        return [plain(x) for x in v]
    if is_time(type(v)):
        return v.isoformat()
    if hasattr(v, "model_dump"):  # of pydantic
        return v.model_dump(mode="json")
    raise TypeError(f"a result cannot have a value of type {type(v).__name__}")
