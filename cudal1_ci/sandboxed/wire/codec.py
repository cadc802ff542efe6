"""Turn frozen dataclasses into JSON and back, and check what arrives.

    body = encode(Batch(seed=3))     # b'{"op": "batch", "seed": 3}'
    decode(Form(Request), body)      # Batch(seed=3)

A peer may be hostile. What arrives has exactly the fields of its class, each of exactly the type
that the class states. A class may refuse values in `__post_init__` by a ValueError. Anything else
is a ProtocolError that names message, field, expected and received value.

A class variable `op` or `type` distinguishes a class from others. Of a union of classes one may be
without. Types that a field may have: bool, int, float (an int is taken for one), str, None,
Literal, tuple, dict with str keys, such classes, unions of these, and each of them with bounds
(`Within`, `AtMost`) in an Annotated.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import reprlib
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, TypeVar

T = TypeVar("T")
Reply = TypeVar("Reply")
Read = Callable[[Any], Any]
"""Checks a JSON value and returns the decoded one. Raises Misfit."""

TAGS = ("op", "type")
MAX_SHOWN_CHARS = 80
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = MAX_SHOWN_CHARS


class ProtocolError(Exception):
    """The received message is not the expected one."""

    def __init__(self, message: str, field: str, expected: str, got: str):
        super().__init__(f"{message}{field and f'.{field}'}: expected {expected}, got {got}")
        self.message = message
        self.field = field
        """`calls[0].slots[2].dtype`; empty for the message as a whole."""
        self.expected = expected
        self.got = got


class Misfit(Exception):
    """A value that does not fit. It is passed up to where the name of its field is known."""

    def __init__(self, expected: str, got: Any):
        super().__init__(expected)
        self.expected = expected
        self.got = got
        self.path: list[str | int] = []
        self.message: str | None = None
        """Class that a value of a union was taken for; the outermost one stays."""

    def within(self, step: str | int) -> Misfit:
        """Return the same misfit, with the name or number under which a container holds the
        value."""
        self.path.insert(0, step)
        return self


class Nothing:
    """Mark a field that did not come."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = Nothing()


@dataclasses.dataclass(frozen=True)
class Within:
    """Bounds of a number, both inclusive. NaN is never within them."""

    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class AtMost:
    """Bound of the length of a text, a tuple or a dict."""

    length: int


class Asks(Generic[Reply]):
    """Base of requests: `class Check(Asks[Checked])` is answered by a Checked."""

    op: typing.ClassVar[str]


class Form(Generic[T]):
    """The form of a message: a class, or a union of classes."""

    def __init__(self, of: Any):
        self.of = of
        self.name = name_of(of)
        self.read = reader(of)


# --- encoding ----------------------------------------------------------------------------------


def encode(message: Any) -> bytes:
    """Return a message as JSON."""
    return ENCODER.encode(message).encode()


def fields_of(value: Any) -> dict[str, Any]:
    """Return a dataclass's fields by name, with its tag. Raises TypeError for another value."""
    kind: Any = type(value)
    tag, names = layout(kind)
    return {**tag, **{name: getattr(value, name) for name in names}}


ENCODER = json.JSONEncoder(default=fields_of)


@functools.cache
def layout(kind: type) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return tag and names of the fields of a dataclass."""
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"a {kind.__name__} cannot be sent")
    tag = tag_of(kind)
    return dict([tag] if tag else []), tuple(one.name for one in dataclasses.fields(kind))


def tag_of(kind: type) -> tuple[str, str] | None:
    """Return name and value of the tag that distinguishes a class from others."""
    for name in TAGS:
        value = getattr(kind, name, None)
        if isinstance(value, str) and name not in {one.name for one in dataclasses.fields(kind)}:
            return name, value
    return None


# --- decoding ----------------------------------------------------------------------------------


def decode(form: Form[T], body: bytes) -> T:
    """Return the message that the bytes hold. Raises ProtocolError."""
    try:
        value = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(form.name, "", "JSON", str(error)[:MAX_SHOWN_CHARS]) from None
    return converted(form, value)


def converted(form: Form[T], value: Any) -> T:
    """Return the message that a JSON value is. Raises ProtocolError."""
    try:
        found: T = form.read(value)
    except RecursionError:
        raise ProtocolError(form.name, "", "less nesting", shown(value)) from None
    except Misfit as misfit:
        field = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in misfit.path)
        name = misfit.message or form.name
        raise ProtocolError(
            name, field.removeprefix("."), misfit.expected, shown(misfit.got)
        ) from None
    return found


def answers_to(request: Asks[Reply]) -> Form[Reply]:
    """Return the form of what answers a request."""
    return answers_or(request)


def answers_or(request: Asks[Any], *others: Any) -> Form[Any]:
    """Return the form of what answers a request, or is one of the `others`."""
    kind: Any = type(request)
    return form_of_answers(kind, others)


@functools.cache
def form_of_answers(request: Any, others: tuple[Any, ...]) -> Form[Any]:
    """Return the form of the answers to a request's class."""
    for base in getattr(request, "__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Asks):
            (reply,) = typing.get_args(base)
            every = (reply, *others)
            return Form(typing.Union[every] if others else reply)  # noqa: UP007 (no `|` of a tuple)
    raise TypeError(f"{request.__name__} says of no reply that it asks for it")


@functools.cache
def reader(kind: Any) -> Read:
    """Return what checks values of a type. Raises TypeError for one that no field may have."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return bounded(reader(arguments[0]), arguments[1:])
    if origin is Literal:
        return one_of(arguments)
    if origin in (typing.Union, types.UnionType):
        return any_of(arguments)
    if origin is tuple and arguments[1:] == (...,):
        return many_of(arguments[0])
    if origin is tuple:
        return row_of(arguments)
    if origin is dict and arguments[0] is str:
        return table_of(arguments[1])
    if kind in (bool, int, str):
        return plain(kind)
    if kind is float:
        return number
    if kind in (None, type(None)):
        return nothing
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return message_of(kind)
    raise TypeError(f"{kind!r} cannot be received")


def plain(kind: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise Misfit(kind.__name__, value)
        return value

    return read


def number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is not int or abs(value) > 2**1000:
        raise Misfit("float", value)
    return float(value)


def nothing(value: Any) -> None:
    if value is not None:
        raise Misfit("None", value)


def one_of(words: tuple[Any, ...]) -> Read:
    expected = " or ".join(map(repr, words))

    def read(value: Any) -> Any:
        if not any(type(value) is type(word) and value == word for word in words):
            raise Misfit(expected, value)
        return value

    return read


def many_of(kind: Any) -> Read:
    read_one = reader(kind)

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Misfit("a list", value)
        number = -1
        found = []
        try:
            for number, one in enumerate(value):  # noqa: B007 - where it stopped
                found.append(read_one(one))
        except Misfit as misfit:
            raise misfit.within(number) from None
        return tuple(found)

    return read


def row_of(kinds: tuple[Any, ...]) -> Read:
    reads = [reader(kind) for kind in kinds]

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(reads):
            raise Misfit(f"a list of {len(reads)}", value)
        found = []
        for number, (read_one, one) in enumerate(zip(reads, value, strict=True)):
            try:
                found.append(read_one(one))
            except Misfit as misfit:
                raise misfit.within(number) from None
        return tuple(found)

    return read


def table_of(kind: Any) -> Read:
    read_one = reader(kind)

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Misfit("an object", value)
        found = {}
        for name, one in value.items():
            try:
                found[name] = read_one(one)
            except Misfit as misfit:
                raise misfit.within(name[:MAX_SHOWN_CHARS]) from None
        return found

    return read


def bounded(read_one: Read, bounds: tuple[Any, ...]) -> Read:
    def read(value: Any) -> Any:
        found = read_one(value)
        for bound in bounds:
            if isinstance(bound, Within) and not bound.low <= found <= bound.high:
                raise Misfit(f"a number from {bound.low:g} to {bound.high:g}", value)
            if isinstance(bound, AtMost) and len(found) > bound.length:
                raise Misfit(f"a length of at most {bound.length}", len(found))
        return found

    return read


def any_of(kinds: tuple[Any, ...]) -> Read:
    """Return what reads a union: the class with the tag, or the one without; of other types the
    first that accepts the value."""
    tagged: dict[tuple[str, str], Read] = {}
    bare: list[Read] = []
    bare_names: list[str] = []
    rest: list[Any] = []
    for kind in kinds:
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            tag = tag_of(kind)
            if tag is None:
                bare.append(as_one(kind))
                bare_names.append(kind.__name__)
            elif tag in tagged:
                raise TypeError(f"two classes of a union have the tag {tag}")
            else:
                tagged[tag] = as_one(kind)
        else:
            rest.append(kind)
    if len(bare) > 1:
        raise TypeError(f"nothing tells {bare_names} apart")
    expected = " or ".join([*map(name_of, rest), *(repr(v) for _, v in tagged), *bare_names])
    names = dict.fromkeys(name for name, _ in tagged)
    reads = [reader(kind) for kind in rest]

    def read(value: Any) -> Any:
        if type(value) is dict and (tagged or bare):
            for name in names:
                word = value.get(name)
                if type(word) is str and (name, word) in tagged:
                    return tagged[name, word](value)
            if bare:
                return bare[0](value)
            for name in names:
                if name in value:
                    raise Misfit(expected, value[name]).within(name)
        misfits = []
        for read_one in reads:
            try:
                return read_one(value)
            except Misfit as misfit:
                misfits.append(misfit)
        raise next((one for one in misfits if one.path), Misfit(expected, value))

    return read


def as_one(kind: type) -> Read:
    """Read a class of a union."""
    read_it = reader(kind)

    def read(value: Any) -> Any:
        try:
            return read_it(value)
        except Misfit as misfit:
            misfit.message = kind.__name__
            raise

    return read


def message_of(kind: type) -> Read:
    """Read an object with exactly the fields of a class."""
    tag = tag_of(kind)
    tag_name, tag_value = tag or ("", "")
    names: frozenset[str] = frozenset()
    reads: list[tuple[str, Read]] = []

    def read(value: Any) -> Any:
        nonlocal names, reads
        if type(value) is not dict:
            raise Misfit(f"an object ({kind.__name__})", value)
        if not names:  # not before the first value: a class may hold others of its own kind
            names, reads = frozenset((*layout(kind)[0], *layout(kind)[1])), reads_of(kind)
        if value.keys() != names:
            raise not_its_fields(names, value)
        if tag_name and value[tag_name] != tag_value:
            raise Misfit(repr(tag_value), value[tag_name]).within(tag_name)
        name = ""
        found = {}
        try:
            for name, read_one in reads:
                found[name] = read_one(value[name])
        except Misfit as misfit:
            raise misfit.within(name) from None
        try:
            return kind(**found)
        except ValueError as error:
            raise Misfit(str(error), value) from None

    return read


def reads_of(kind: type) -> list[tuple[str, Read]]:
    """Return what checks each field of a class."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return [(name, reader(hints[name])) for name in layout(kind)[1]]


def not_its_fields(names: frozenset[str], given: dict[str, Any]) -> Misfit:
    """Return the message on missing or unknown fields."""
    for name in sorted(names - given.keys()):
        return Misfit("it to be there", NOTHING).within(name)
    name = min(given.keys() - names)
    known = ", ".join(sorted(names)) or "none"
    return Misfit(f"no field but {known}", given[name]).within(name[:MAX_SHOWN_CHARS])


def name_of(kind: Any) -> str:
    """Return a type in words."""
    if typing.get_origin(kind) is Annotated:
        return name_of(typing.get_args(kind)[0])
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__name__
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " | ".join(map(name_of, typing.get_args(kind)))
    return str(kind).replace("typing.", "")


def shown(value: Any) -> str:
    """Return a value of a message, shortened."""
    return SHORT.repr(value)[: 2 * MAX_SHOWN_CHARS]
