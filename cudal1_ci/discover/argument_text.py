"""Parse the text form of arguments into specs.

A parse error names the position, what was expected and what came. The parser never evaluates
anything: a worker imports symbols later.

    parse_argument("mask=bool[8, 128]") == ("mask", TensorSpec(shape=(8, 128), dtype="bool"))

    argument = [NAME "="] value
    value    = tensor | literal | list | tuple | set | dict | symbol | symbol "(" arguments ")"
    tensor   = DTYPE "[" sizes "]" {"in" LOW ".." HIGH | "stride" "(" strides ")"
               | "channels_last" | "channels_last_3d" | "on" DEVICE | "grad" | INVARIANT}
    symbol   = "torch" "." NAMES | MODULE ":" NAMES
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar, get_args

from cudal1_ci.records import ArgumentSpec, Constant, Instance, Items, Mapping, Symbol, TensorSpec
from cudal1_ci.records.workload import Invariant

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    *("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool"),
    *("complex64", "complex128"),
)
OTHER_NAMES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bf16": "bfloat16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "byte": "uint8",
    "cfloat": "complex64",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "tensor": "float32",
}
"""Other names of a dtype: suggested, not accepted, so that one type has one name."""

INVARIANTS: tuple[str, ...] = get_args(Invariant)

CHANNELS_LAST = {"channels_last": 4, "channels_last_3d": 5}
"""Memory formats, and the number of dimensions that each is for."""

_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")"
    r"|(?P<number>[+-]?(?:(?:\d[\d_]*(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?|inf\b|nan\b))"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<mark>\.\.|[\[\](){},:=.])"
    r"|(?P<end>$)"
    r"|(?P<unknown>\S))"
)

Element = TypeVar("Element")


class ArgumentTextError(ValueError):
    """Report that a text is not an argument: what was expected, what came, and where."""


@dataclass(frozen=True)
class Token:
    """Hold a word of the text and the position of its first character."""

    kind: str
    text: str
    start: int


def parse_argument(text: str) -> tuple[str | None, ArgumentSpec]:
    """Parse an argument into its keyword name, or None, and its spec.

    Raises: ArgumentTextError.
    """
    reader = Reader(text)
    name = reader.keyword()
    spec = reader.value()
    reader.expect("end", "", "the end of the text")
    return name, spec


class Reader:
    """Read one text from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.at = 0

    @property
    def token(self) -> Token:
        return self.tokens[min(self.at, len(self.tokens) - 1)]

    def ahead(self, text: str, steps: int = 0) -> bool:
        """Return whether a mark or name comes next, or `steps` tokens further on."""
        index = self.at + steps
        if index >= len(self.tokens):
            return False
        token = self.tokens[index]
        return token.kind in {"mark", "name"} and token.text == text

    def accept(self, text: str) -> bool:
        """Take a mark or name if it comes next."""
        if self.ahead(text):
            self.at += 1
            return True
        return False

    def expect(self, kind: str, text: str, wanted: str) -> Token:
        """Take the next token, which must be of a kind and, unless empty, have a text."""
        token = self.token
        if token.kind != kind or (text and token.text != text):
            raise self.error(wanted)
        self.at += 1
        return token

    def error(self, wanted: str, token: Token | None = None) -> ArgumentTextError:
        token = token or self.token
        got = f"`{token.text}` at character {token.start + 1}" if token.text else "the end"
        return ArgumentTextError(f'expected {wanted}, got {got} of "{self.text}"')

    def keyword(self) -> str | None:
        """Read `name=` and return the name; return None if it does not come next."""
        if self.token.kind == "name" and self.ahead("=", 1):
            self.at += 2
            return self.tokens[self.at - 2].text
        return None

    def value(self) -> ArgumentSpec:
        token = self.token
        if token.kind == "number":
            self.at += 1
            return number_spec(_read_number(token.text))
        if token.kind == "string":
            self.at += 1
            return Constant(value=self.unquoted(token))
        if token.kind == "name":
            return self.named()
        if self.accept("["):
            return Items(items=tuple(self.until("]", self.value)))
        if self.accept("("):
            return self.parenthesized()
        if self.accept("{"):
            return self.braced()
        raise self.error("a tensor such as float32[8, 128], a literal or pkg.mod:Name")

    def unquoted(self, token: Token) -> str:
        try:
            return str(ast.literal_eval(token.text))
        except (SyntaxError, ValueError):
            raise self.error("a string as Python writes one", token) from None

    def until(self, closing: str, element: Callable[[], Element]) -> list[Element]:
        """Read elements separated by commas, up to and including a closing mark."""
        found: list[Element] = []
        while not self.accept(closing):
            if found and not self.accept(","):
                raise self.error(f"`,` or `{closing}`")
            if found and self.accept(closing):
                break
            found.append(element())
        return found

    def parenthesized(self) -> ArgumentSpec:
        """Read parentheses: a tuple if they are empty or hold a comma, else the value inside."""
        items = self.until(")", self.value)
        is_tuple = len(items) != 1 or self.tokens[self.at - 2].text == ","
        return Items(items=tuple(items), container="tuple") if is_tuple else items[0]

    def braced(self) -> ArgumentSpec:
        """Read a dict, which may be empty, or a set."""
        if self.ahead(":", 1) or self.ahead("}"):
            return Mapping(items=tuple(self.until("}", self.pair)))
        return Items(items=tuple(self.until("}", self.value)), container="set")

    def pair(self) -> tuple[ArgumentSpec, ArgumentSpec]:
        if self.token.kind not in {"string", "number"} and self.token.text not in _CONSTANTS:
            raise self.error("a string, number, bool or None as key")
        key = self.value()
        self.expect("mark", ":", "`:` after the key")
        return key, self.value()

    def named(self) -> ArgumentSpec:
        """Read what begins with a word: a constant, a tensor, a symbol or a call of a symbol."""
        token = self.token
        if self.ahead("[", 1):
            return self.tensor()
        if token.text in _CONSTANTS:
            self.at += 1
            return Constant(value=_CONSTANTS[token.text])
        path = self.symbol()
        if not self.accept("("):
            return Symbol(path=path)
        args: list[ArgumentSpec] = []
        kwargs: dict[str, ArgumentSpec] = {}
        for name, spec in self.until(")", lambda: (self.keyword(), self.value())):
            if name is not None:
                kwargs[name] = spec
            elif kwargs:
                raise self.error("`name=` for each argument after the first that is named")
            else:
                args.append(spec)
        return Instance(factory=path, args=tuple(args), kwargs=kwargs)

    def symbol(self) -> str:
        """Read `torch.float16` or `pkg.mod:Name.Inner` as an import path."""
        first = self.token
        module = self.dotted()
        if self.accept(":"):
            return f"{module}:{self.dotted()}"
        root, _, rest = module.partition(".")
        if root == "torch" and rest:
            return f"torch:{rest}"
        if rest:
            raise self.error(
                f"`{module.rpartition('.')[0]}:{module.rpartition('.')[2]}` (a colon between "
                "module and name)",
                first,
            )
        if root in DTYPES:
            raise self.error(f"a shape, `{root}[8, 128]`, or the dtype itself, `torch.{root}`")
        raise self.error(
            f"a tensor such as float32[8, 128], a literal (a string has quotes of its own: "
            f"'{root}') or pkg.mod:Name",
            first,
        )

    def dotted(self) -> str:
        parts = [self.expect("name", "", "a name").text]
        while self.accept("."):
            parts.append(self.expect("name", "", "a name after the dot").text)
        return ".".join(parts)

    def tensor(self) -> TensorSpec:
        dtype = self.token
        if dtype.text not in DTYPES:
            near = OTHER_NAMES.get(dtype.text) or next(
                iter(difflib.get_close_matches(dtype.text, DTYPES, n=1)), None
            )
            raise self.error(f"a dtype (did you mean {near}?)" if near else "a dtype", dtype)
        self.at += 2
        shape = tuple(self.until("]", lambda: self.integer("a size of 0 or more")))
        traits: dict[str, Any] = {}
        while self.token.kind == "name":
            self.trait(dtype.text, shape, traits)
        return TensorSpec(shape=shape, dtype=dtype.text, **traits)

    def trait(self, dtype: str, shape: tuple[int, ...], traits: dict[str, Any]) -> None:
        """Read one trait after a tensor's shape and store it in `traits`."""
        token = self.token
        self.at += 1
        if token.text == "in":
            traits["low"], traits["high"] = self.range_of(dtype)
            if "int" not in dtype and dtype != "bool":
                traits["invariants"] = (*traits.get("invariants", ()), "range")
        elif token.text == "stride":
            self.expect("mark", "(", "`(` after stride")
            stride = tuple(self.until(")", lambda: self.integer("a stride of 0 or more")))
            if len(stride) != len(shape):
                raise self.error(f"{len(shape)} strides, one for each size", token)
            traits["stride"] = stride
        elif token.text in CHANNELS_LAST:
            if len(shape) != CHANNELS_LAST[token.text]:
                raise self.error(f"{CHANNELS_LAST[token.text]} sizes for {token.text}", token)
            traits["stride"] = channels_last_stride(shape)
        elif token.text == "on":
            device = self.expect("name", "", "a device such as cuda").text
            index = f":{self.integer('a device number')}" if self.accept(":") else ""
            traits["device"] = device + index
        elif token.text == "grad":
            traits["requires_grad"] = True
        elif token.text in INVARIANTS:
            traits["invariants"] = (*traits.get("invariants", ()), token.text)
        else:
            names = ", ".join(INVARIANTS)
            wanted = f"in, stride, channels_last, on, grad, {names} or the end"
            raise self.error(wanted, token)

    def integer(self, wanted: str) -> int:
        token = self.expect("number", "", wanted)
        value = _read_number(token.text)
        if not isinstance(value, int) or value < 0:
            raise self.error(wanted, token)
        return value

    def range_of(self, dtype: str) -> tuple[float, float]:
        """Read `LOW..HIGH`, both inclusive."""
        first = self.token
        whole = "int" in dtype
        wanted = "a whole number" if whole else "a number"
        ends = []
        for number in range(2):
            token = self.expect("number", "", f"{wanted}, as in 0..999")
            value = _read_number(token.text)
            if not isfinite(value) or (whole and not isinstance(value, int)):
                raise self.error(f"{wanted}, for the dtype is {dtype}", token)
            ends.append(value)
            if number == 0:
                self.expect("mark", "..", "`..` and the highest value")
        if ends[0] > ends[1]:
            raise self.error("the lower end of the range first", first)
        return ends[0], ends[1]


_CONSTANTS: dict[str, bool | None] = {"None": None, "True": True, "False": False}


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while not found or found[-1].kind != "end":
        match = _TOKEN.match(text, at)
        assert match is not None
        kind = str(match.lastgroup)
        found.append(Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return found


def _read_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def number_spec(value: bool | int | float) -> ArgumentSpec:
    """Return a number's spec; JSON carries a non-finite number as a call of `float`."""
    if isinstance(value, float) and not isfinite(value):
        return Instance(factory="builtins:float", args=(Constant(value=str(value)),))
    return Constant(value=value)


def channels_last_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of `[N, C, ...]` laid out as `[N, ..., C]`."""
    order = [1, *range(len(shape) - 1, 1, -1), 0]
    stride = [0] * len(shape)
    step = 1
    for axis in order:
        stride[axis] = step
        step *= max(shape[axis], 1)
    return tuple(stride)
