"""Paths through a function, with what they do to streams.

Paths through a function are followed with what they do to streams: contexts, `set_stream`,
`wait_stream`, events, `synchronize`, CUDA graphs (entering a capture synchronizes the device), and
calls of the text's own functions. A wait inside of the side stream's own context waits for itself.
Loops are followed once, exceptions from the start of their `try`. Not followed: streams kept in
other objects, handed to C++, or reached through names that only exist when run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cudal1_ci.verification.static_rules.conditions import assumptions, decided
from cudal1_ci.verification.static_rules.python_text import (
    Function,
    PythonText,
    last,
    path_text,
    words,
)
from cudal1_ci.verification.static_rules.stream_state import CAPTURE, MAIN, StreamState

_CONTEXT = re.compile(
    r"torch\.(cuda|cuda\.streams)\.(stream|StreamContext)|torch\.accelerator\.stream"
)
CURRENT = re.compile(r"torch\.(cuda|accelerator)\.(current_stream|current_stream_)")
DEFAULT = re.compile(r"torch\.cuda\.default_stream")
_EVERYTHING = re.compile(r"torch\.(cuda|accelerator)\.synchronize")
_GRAPH = re.compile(r"torch\.cuda\.(graph|graphs\.graph)")
_IDLE = words(
    "wait_stream wait_event record record_event synchronize query Stream Event current_stream "
    "wait default_stream set_stream is_available print append range len enumerate zip "
    "isinstance hasattr getattr size dim data_ptr record_stream CUDAGraph no_grad "
    "inference_mode stream graph items keys values min max int float str tuple list dict get "
    "device is_contiguous numel"
)
"""Calls that give a stream nothing to do."""
MOST_STEPS = 20_000
"""Of all functions of a text together: statements, times the states in which they are met."""
MOST_STATES = 64
DEEPEST_BLOCK = 40
DEEPEST_CALL = 4

States = list[StreamState]


class TooIntricate(Exception):
    """More paths than are followed."""


@dataclass
class Walk:
    """One pass over a function: its text, and the states in which it was left."""

    text: PythonText
    callables: dict[str, Function]
    main_attributes: set[str]
    stack: list[Function] = field(default_factory=list)
    exits: list[States] = field(default_factory=list)
    steps: int = 0
    depth: int = 0

    # --- statements ----------------------------------------------------------------------

    def run(self, function: Function, state: StreamState) -> States:
        """The states in which a function returns."""
        self.stack.append(function)
        self.exits.append([])
        try:
            left = self.block(function.body, [state])
            return distinct([*left, *self.exits[-1]])
        finally:
            self.exits.pop()
            self.stack.pop()

    def block(self, body: Iterable[ast.stmt], states: States) -> States:
        self.depth += 1
        if self.depth > DEEPEST_BLOCK:
            raise TooIntricate
        for statement in body:
            self.steps += len(states)
            if self.steps > MOST_STEPS:
                raise TooIntricate
            if not states:
                break
            states = distinct(self.statement(statement, states))
        self.depth -= 1
        return states

    def statement(self, statement: ast.stmt, states: States) -> States:
        match statement:
            case ast.If(test=test, body=body, orelse=orelse):
                states = self.effects(test, states)
                yes = self.block(body, self.on(test, True, states))
                return [*yes, *self.block(orelse, self.on(test, False, states))]
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                return self.context(items, body, states)
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                for element in elements(iterable):
                    states = [
                        self.looped(target, element, s) for s in self.effects(iterable, states)
                    ]
                    states = self.block(body, states)
                return self.block(orelse, states)
            case ast.While(test=test, body=body):
                states = self.effects(test, states)
                return [*states, *self.block(body, states)]
            case (
                ast.Try(body=body, orelse=orelse, finalbody=finalbody)
                | ast.TryStar(body=body, orelse=orelse, finalbody=finalbody)
            ):
                return self.attempt(statement, body, orelse, finalbody, states)
            case ast.Match(subject=subject, cases=cases):
                states = self.effects(subject, states)
                taken = [after for case in cases for after in self.block(case.body, states)]
                return [*states, *taken]
            case ast.Return(value=value):
                self.exits[-1].extend(self.effects(value, states))
                return []
            case ast.Raise():
                return []
            case ast.Assign(targets=targets, value=value):
                states = self.effects(value, states)
                for target in targets:
                    states = [self.assigned(target, value, s) for s in states]
                return states
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return states
        return self.effects(statement, states)

    def on(self, test: ast.expr, answer: bool, states: States) -> States:
        """The states that take one branch of a condition."""
        assumed = frozenset(assumptions(self.text, test, answer))
        taken = [s for s in states if decided(self.text, test, dict(s.tests)) is not (not answer)]
        return [s.assumed(assumed) for s in taken]

    def context(self, items: list[ast.withitem], body: list[ast.stmt], states: States) -> States:
        """A `with`: inside another stream may be current, outside the old one is again."""
        left: States = []
        for state in states:
            inner = [state]
            for item in items:
                inner = [self.entered(item.context_expr, s) for s in inner]
            num_exits = len(self.exits[-1])
            after = self.block(body, inner)
            self.exits[-1][num_exits:] = [
                self.restored(s, state) for s in self.exits[-1][num_exits:]
            ]
            left.extend(self.restored(s, state) for s in after)
        return left

    def restored(self, state: StreamState, outer: StreamState) -> StreamState:
        return replace(state, current=outer.current, current_line=outer.current_line)

    def entered(self, context: ast.expr, state: StreamState) -> StreamState:
        """The state inside of a context."""
        call = self.context_call(context)
        if call is None:
            return state
        path = self.text.dotted(call.func) or ""
        if _GRAPH.fullmatch(path):
            return replace(state, current=CAPTURE, pending=frozenset())
        if _CONTEXT.fullmatch(path) and call.args:
            key = self.key(call.args[0], state)
            if key is not None and state.current != CAPTURE:
                return replace(state, current=key, current_line=context.lineno)
        return state

    def context_call(self, context: ast.expr) -> ast.Call | None:
        """The call that makes a context, through a name or either branch of a choice."""
        match context:
            case ast.Call():
                return context
            case ast.Name(id=name):
                bound = self.text.bindings(context, name)
                found = [b for b in bound if isinstance(b, ast.Call | ast.IfExp)]
                return self.context_call(found[0]) if len(found) == 1 else None
            case ast.IfExp(body=ast.Call() as call):
                return call
        return None

    def attempt(
        self,
        statement: ast.Try | ast.TryStar,
        body: list[ast.stmt],
        orelse: list[ast.stmt],
        finalbody: list[ast.stmt],
        states: States,
    ) -> States:
        """A `try`: the body, or a handler from the state before it; then what is always done."""
        num_exits = len(self.exits[-1])
        left = self.block(orelse, self.block(body, states))
        for handler in statement.handlers:
            left = [*left, *self.block(handler.body, states)]
        if finalbody:
            returned = self.exits[-1][num_exits:]
            del self.exits[-1][num_exits:]
            self.exits[-1].extend(self.block(finalbody, distinct(returned)))
            left = self.block(finalbody, distinct(left))
        return left

    # --- expressions ---------------------------------------------------------------------

    def effects(self, node: ast.AST | None, states: States) -> States:
        """What evaluating an expression does to streams."""
        if node is None:
            return states
        for part in reversed(list(ast.walk(node))):  # arguments before the calls that take them
            if isinstance(part, ast.comprehension):
                states = [self.looped(part.target, part.iter, s) for s in states]
        for part in reversed(list(ast.walk(node))):
            if isinstance(part, ast.Call):
                states = [after for s in states for after in self.called(part, s)]
            elif isinstance(part, ast.BinOp):
                states = [s.working() for s in states]
        return states

    def called(self, call: ast.Call, state: StreamState) -> States:
        """The states after a call."""
        word = last(call.func)
        path = self.text.dotted(call.func) or ""
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        argument = call.args[0] if call.args else None
        if _EVERYTHING.fullmatch(path):
            return [replace(state, pending=frozenset())]
        if path.endswith("cuda.set_stream") and argument is not None:
            key = self.key(argument, state)
            line = call.lineno
            return [state if key is None else replace(state, current=key, current_line=line)]
        if receiver is not None and word in {"wait_stream", "wait_event", "wait", "synchronize"}:
            return [self.waited(word, receiver, argument, state)]
        if receiver is not None and word in {"record", "record_event"}:
            return [self.noted(word, receiver, argument, state)]
        callee = self.callables.get(word)
        if callee is not None and callee not in self.stack and len(self.stack) < DEEPEST_CALL:
            return self.inlined(callee, call, state)
        return [state if word in _IDLE else state.working()]

    def waited(
        self, word: str, receiver: ast.expr, argument: ast.expr | None, state: StreamState
    ) -> StreamState:
        """`stream.wait_stream(s)`, `stream.wait_event(e)`, `event.wait(s)`, `x.synchronize()`."""
        events = dict(state.events)
        whose = self.key(receiver, state)
        if word == "synchronize":
            stream = events.get(whose or "", whose)
            return state if stream == MAIN else state.joined(stream, MAIN)
        if word == "wait":
            if whose not in events:
                return state
            by = self.key(argument, state) if argument is not None else state.current
            return state.joined(events[whose], by)
        if argument is None:
            return state
        other = self.key(argument, state)
        if word == "wait_event":
            other = events.get(other or "")
        return state.joined(other, whose)

    def noted(
        self, word: str, receiver: ast.expr, argument: ast.expr | None, state: StreamState
    ) -> StreamState:
        """`event.record(stream)`, `stream.record_event(event)`."""
        event: ast.expr | None = receiver
        stream: str | None = state.current
        if word == "record_event":
            event, stream = argument, self.key(receiver, state)
        elif argument is not None:
            stream = self.key(argument, state)
        key = self.key(event, state) if event is not None else None
        return state if key is None or stream is None else state.recorded(key, stream)

    def inlined(self, callee: Function, call: ast.Call, state: StreamState) -> States:
        """The states after a function of the text has run."""
        names = [a.arg for a in callee.args.args if a.arg not in {"self", "cls"}]
        inner = replace(state, tests=frozenset(t for t in state.tests if "self." in t[0]))
        for name, value in zip(names, call.args, strict=False):
            inner = inner.name(name, self.key(value, state))
        after = self.run(callee, inner)
        kept = [replace(s, names=state.names, tests=s.tests | state.tests) for s in after]
        return distinct([self.restored(s, state) for s in kept])

    # --- what streams are called ---------------------------------------------------------

    def key(self, node: ast.AST | None, state: StreamState) -> str | None:
        """How a stream or event is known; None when nothing is known of it."""
        match node:
            case ast.Call(func=func):
                path = self.text.dotted(func) or ""
                if CURRENT.fullmatch(path):
                    return state.current
                if DEFAULT.fullmatch(path):
                    return MAIN
                if last(func) == "record_event" and isinstance(func, ast.Attribute):
                    return f"event@{node.lineno}:{node.col_offset}"
                if last(func) in {"Stream", "ExternalStream"}:
                    return f"stream@{node.lineno}:{node.col_offset}"
            case ast.Name(id=name):
                known = state.named(name)
                return known if known is not None else name
            case ast.Attribute():
                path = path_text(node) or ""
                return MAIN if path in self.main_attributes else state.named(path) or path or None
            case ast.Subscript(value=value, slice=index):
                base = self.key(value, state)
                literal = repr(index.value) if isinstance(index, ast.Constant) else ""
                return None if base is None else f"{base}[{literal}]"
            case ast.IfExp(body=body, orelse=orelse):
                return self.key(body, state) or self.key(orelse, state)
            case ast.BoolOp(values=[first, *_]):
                return self.key(first, state)
        return None

    def assigned(self, target: ast.expr, value: ast.expr, state: StreamState) -> StreamState:
        """The state after an assignment: which stream a name is, which conditions are void."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for name, part in zip(target.elts, value.elts, strict=False):
                state = self.assigned(name, part, state)
            return state
        path = path_text(target)
        if path is None:
            return state
        state = state.forgotten(path)
        if isinstance(value, ast.Call) and last(value.func) == "record_event":
            stream = (
                self.key(value.func.value, state) if isinstance(value.func, ast.Attribute) else None
            )
            return state.name(path, None).recorded(path, stream or MAIN)
        if isinstance(value, ast.Call) and not CURRENT.fullmatch(
            self.text.dotted(value.func) or ""
        ):
            return state.name(path, None)
        return state.name(path, self.key(value, state))

    def looped(self, target: ast.expr, iterable: ast.expr, state: StreamState) -> StreamState:
        """The state in which a loop's variables stand for elements of what is gone through."""
        match target, iterable:
            case ast.Tuple(elts=[_, inner]), ast.Call(
                func=ast.Name(id="enumerate"), args=[each, *_]
            ):
                return self.looped(inner, each, state)
            case ast.Tuple(elts=names), ast.Call(func=ast.Name(id="zip"), args=lists):
                for name, each in zip(names, lists, strict=False):
                    state = self.looped(name, each, state)
            case ast.Name(id=name), ast.Name() | ast.Attribute():
                base = self.key(iterable, state)
                return state.name(name, f"{base}[]" if base else None)
            case ast.Name(id=name), ast.Starred(value=element):
                return state.name(name, self.key(element, state))
        return state


def elements(iterable: ast.expr) -> list[ast.expr]:
    """What a loop goes through: each element of a short literal, or the whole, once."""
    if isinstance(iterable, ast.Tuple | ast.List) and 0 < len(iterable.elts) <= 8:
        return [ast.Starred(value=e, ctx=ast.Load()) for e in iterable.elts]
    return [iterable]


def distinct(states: States) -> States:
    """States without repetition; too many of one current stream are one."""
    kept = list(dict.fromkeys(states))
    if len(kept) > MOST_STATES:
        kept = list(dict.fromkeys(replace(s, tests=frozenset()) for s in kept))
    if len(kept) > MOST_STATES:
        merged: dict[str, StreamState] = {}
        for state in kept:
            known = merged.setdefault(state.current, state)
            merged[state.current] = replace(known, pending=known.pending | state.pending)
        kept = list(merged.values())
    return kept
