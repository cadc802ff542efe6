"""Write the Triton kernel of a recurrence, its launcher, and the check of what it takes.

    if h_scan_fits(*scanned):
        hs = h_scan(*scanned)
    else:
        ...                         # the old loop

Each program keeps some rows of the state in registers: elements that no step mixes. A dimension
that a step sums over is whole in each program. Tensors are read with their strides.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.nodes import in_order
from cudal1_ci.propose.recorded.bounds import plus
from cudal1_ci.propose.recorded.lifted import Refused
from cudal1_ci.propose.recorded.recurrence import Output, Scan, shown_scan
from cudal1_ci.propose.recorded.recurrence_axes import Axis, Dims, Leaf
from cudal1_ci.propose.recorded.rule import Change

MODULES = frozenset(("torch", "triton", "triton.language as tl"))
LIBDEVICE = "triton.language.extra.libdevice as libdevice"
LETTERS = "ijkm"
RESERVED = {"tl", "triton", "torch", "libdevice", "row", "num_steps", "num_rows", "step", "first"}
MOST_SUMMED = 256


@dataclass
class Kernel:
    """The code of one scan."""

    scan: Scan
    name: str
    taken: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    """Of the leaves in the kernel, by their tokens."""
    hosts: dict[str, str] = field(default_factory=dict)
    """Parameters of the launcher, by the code that they are given."""
    letters: dict[Axis, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scan, terms = self.scan, self.scan.terms
        self.time, self.summed = terms.time.root(), terms.reduction.axis
        self.axes = scan.used()
        if len(self.axes) > len(LETTERS):
            raise Refused
        self.taken = RESERVED | {name for name, _ in terms.lines} | {o.name for o in scan.outputs}
        self.letters = {axis: self.free(one) for axis, one in zip(self.axes, LETTERS, strict=False)}
        if self.summed is not None:
            self.letters[self.summed] = self.free("n")
        self.leaves = scan.leaves()
        self.numbers = [one for one in terms.leaves.values() if one.is_number]
        states = {id(s.leaf) for s in scan.states.values()}
        for leaf in [*self.leaves, *self.numbers]:
            if leaf.code not in self.hosts:
                self.hosts[leaf.code] = self.parameter(leaf.name)
            if id(leaf) in states:
                self.names[leaf.token] = self.free(f"{leaf.name}_first")
            else:
                self.names[leaf.token] = self.free(leaf.name + self.suffix(leaf.dims, leaf.offset))
        for (name, offset), tile in terms.folded.items():
            self.names[tile.code] = self.free(name + self.suffix(tile.dims, offset))

    def suffix(self, dims: Dims, offset: int) -> str:
        """Return what is added to the name of something that differs between steps."""
        if not any(one is not None and one.root() is self.time for one in dims):
            return ""
        return {0: "_t", 1: "_next", -1: "_last"}.get(offset, f"_{'m' * (offset < 0)}{abs(offset)}")

    def free(self, name: str) -> str:
        """Return a name that the kernel does not have yet."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def parameter(self, name: str) -> str:
        while name in self.hosts.values() or name in RESERVED:
            name += "_"
        return name

    def is_in_time(self, leaf: Leaf) -> bool:
        return any(one.root() is self.time for one in leaf.dims)

    def known(self, dims: Dims) -> list[tuple[int, str]]:
        """Return places and letters of the dimensions that differ between elements."""
        return [
            (at, self.letters[one.root()])
            for at, one in enumerate(dims)
            if one is not None and one.root() in self.letters
        ]

    def mask(self, dims: Dims) -> str:
        """Return what elements of a tile there are."""
        axes = {one.root() for one in dims if one is not None}
        parts = ["is_row"] if axes & {*self.axes} else []
        if self.summed is not None and self.summed in axes:
            parts.append(f"is_{self.letters[self.summed]}")
        return " & ".join(parts)

    def shape(self, dims: Dims) -> str:
        axes = {one.root() for one in dims if one is not None}
        parts = ["BLOCK" if axes & {*self.axes} else "1"]
        if self.summed is not None:
            parts.append("WIDTH" if self.summed in axes else "1")
        return f"[{', '.join(parts)}]"

    # --- the kernel ------------------------------------------------------------------------------

    def code(self, text: str) -> str:
        """Return code with names for leaves and sums, and without needless brackets."""
        for token, name in self.names.items():
            text = text.replace(token, name)
        if self.summed is not None:
            letter = self.letters[self.summed]
            text = text.replace("num_summed", f"num_{letter}")
            while (at := text.rfind("sum_over(")) >= 0:
                end = closing(text, at + len("sum_over"))
                inner = text[at + len("sum_over(") : end]
                total = f"tl.sum(tl.where(is_{letter}, {inner}, 0.0), 1, keep_dims=True)"
                text = f"{text[:at]}{total}{text[end + 1 :]}"
        return ast.unparse(ast.parse(text, mode="eval"))

    def strides(self, leaf: Leaf, name: str) -> list[str]:
        """Return the parameters that are a tensor's strides, in order."""
        at_time = [f"{name}_step"] if self.is_in_time(leaf) else []
        return [*(f"{name}_{letter}" for _, letter in self.known(leaf.dims)), *at_time]

    def outputs(self) -> Iterator[tuple[Output, str, list[tuple[int, str]]]]:
        """Yield outputs with their names in the kernel and their letters."""
        for one in self.scan.outputs:
            yield one, f"{one.name}_out", self.known(one.tile.dims)

    def parameters(self) -> Iterator[str]:
        for leaf in self.leaves:
            yield f"{self.names[leaf.token]}_ptr"
        for _, name, _ in self.outputs():
            yield f"{name}_ptr"
        yield from ("num_steps", "num_rows")
        yield from (f"num_{self.letters[one]}" for one in self.axes[1:])
        if self.summed is not None:
            yield f"num_{self.letters[self.summed]}"
        for leaf in self.leaves:
            yield from self.strides(leaf, self.names[leaf.token])
        for one, name, known in self.outputs():
            yield from (f"{name}_{letter}" for _, letter in known)
            if one.kind != "final":
                yield f"{name}_step"
        for leaf in self.numbers:
            yield self.names[leaf.token]

    def constants(self) -> list[str]:
        return ["BLOCK", *(["WIDTH"] if self.summed is not None else []), "STAGES"]

    def kernel(self) -> str:
        parameters = [*self.parameters(), *(f"{one}: tl.constexpr" for one in self.constants())]
        head = [f"@triton.jit\ndef {self.name}_kernel("]
        head += [f"    {one}," for one in parameters]
        before, inside = self.lines()
        sign = "-" if self.scan.backwards else "+"
        for leaf in self.leaves:
            if self.is_in_time(leaf):
                name = self.names[leaf.token]
                inside.append(f"{name}_ptr {sign}= {name}_step")
        for one, name, _ in self.outputs():
            if one.kind != "final":
                is_back = one.backwards if one.kind != "write" else self.scan.backwards
                inside.append(f"{name}_ptr {'-' if is_back else '+'}= {name}_step")
        final = [
            f"tl.store({name}_ptr, {self.code(one.tile.code)}{self.masked(one.tile.dims)})"
            for one, name, _ in self.outputs()
            if one.kind == "final"
        ]
        loop = "for _ in tl.range(0, num_steps, num_stages=STAGES):"
        body = [*self.places(), *before, loop, *(f"    {one}" for one in inside), *final]
        return "\n".join([*head, "):", *(f"    {one}" for one in body)])

    def masked(self, dims: Dims) -> str:
        mask = self.mask(dims)
        return f", {mask}" if mask else ""

    def places(self) -> Iterator[str]:
        """Yield lines that say which elements a program has, and where they are in memory."""
        is_wide = self.summed is not None
        wide = "[:, None]" if is_wide else ""
        if self.axes:
            block = f"tl.arange(0, BLOCK){wide}"
            yield f"row = tl.program_id(0).to(tl.int64) * BLOCK + {block}"
            yield "is_row = row < num_rows"
        letters = [self.letters[one] for one in self.axes]
        for at, one in enumerate(letters):
            sizes = [f"num_{later}" for later in letters[at + 1 :]]
            code = "row"
            if sizes:
                code = f"row // {sizes[0]}" if len(sizes) == 1 else f"row // ({' * '.join(sizes)})"
            yield f"{one} = {code}{f' % num_{one}' if at else ''}"
        if self.summed is not None:
            n = self.letters[self.summed]
            yield f"{n} = tl.arange(0, WIDTH).to(tl.int64)[None, :]"
            yield f"is_{n} = {n} < num_{n}"
        for leaf in self.leaves:
            name = self.names[leaf.token]
            yield from place(name, [letter for _, letter in self.known(leaf.dims)])
        for _, name, known in self.outputs():
            yield from place(name, [letter for _, letter in known])

    def lines(self) -> tuple[list[str], list[str]]:
        """Return the lines before the steps, and those of each step."""
        before: list[str] = []
        inside: list[str] = []
        moving: set[str] = set()
        for state in self.scan.states.values():
            shape = self.shape(state.dims)
            if state.leaf is None:
                full = f"tl.full({shape}, {float(state.number)}, tl.float32)"
                before.append(f"{state.name} = {full}")
            else:
                name = self.names[state.leaf.token]
                load = f"tl.load({name}_ptr{self.masked(state.leaf.dims)})"
                if self.shape(state.leaf.dims) != shape:
                    load = f"tl.broadcast_to({load}, {shape})"
                before.append(f"{state.name} = {load}")
            moving.add(state.name)
        states = {id(one.leaf) for one in self.scan.states.values()}
        for leaf in self.leaves:
            if id(leaf) in states:
                continue
            name = self.names[leaf.token]
            line = f"{name} = tl.load({name}_ptr{self.masked(leaf.dims)})"
            if self.is_in_time(leaf):
                inside.append(line)
                moving.add(name)
            else:
                before.append(line)
        folded = {one.code for one in self.scan.terms.folded.values()}
        for name, code in self.scan.terms.lines:
            if not name:
                output = self.scan.outputs[int(code)]
                value = self.code(output.tile.code)
                masked = self.masked(output.tile.dims)
                inside.append(f"tl.store({output.name}_out_ptr, {value}{masked})")
                continue
            line = f"{self.names.get(name, name)} = {self.code(code)}"
            if name in folded and not names_of(self.code(code)) & moving:
                before.append(line)
            else:
                inside.append(line)
                moving.add(self.names.get(name, name))
        return before, inside

    # --- the launcher ----------------------------------------------------------------------------

    def given(self) -> list[str]:
        """Return the parameters of the launcher."""
        written = [one.name for one in self.scan.outputs if one.kind == "write"]
        return ["num_steps", *self.hosts.values(), *written]

    def tensors(self) -> list[tuple[str, Leaf]]:
        """Return tensors of the launcher with one leaf of each."""
        found: dict[str, Leaf] = {}
        for leaf in self.leaves:
            found.setdefault(self.hosts[leaf.code], leaf)
        for one in self.scan.outputs:
            if one.leaf is not None:
                found.setdefault(one.name, one.leaf)
        return list(found.items())

    def size_code(self, axis: Axis) -> str:
        """Return the size of an axis in the launcher."""
        for name, leaf in self.tensors():
            for at, one in enumerate(leaf.dims):
                if one.root() is axis and one.size == axis.size:
                    return f"{name}.shape[{at}]"
        raise Refused

    def sizes(self) -> Iterator[str]:
        for axis, letter in self.letters.items():
            yield f"num_{letter} = {self.size_code(axis)}"

    def expected(self, name: str, leaf: Leaf) -> str:
        """Return the shape that a tensor has to have."""
        sizes = []
        for at, one in enumerate(leaf.dims):
            if one.root() is self.time:
                sizes.append(f"{name}.shape[{at}]")
            else:
                letter = self.letters.get(one.root())
                if letter is None and one.size != 1:
                    raise Refused
                sizes.append("1" if letter is None else f"num_{letter}")
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def fits(self) -> str:
        """Return the function that says whether the kernel can be launched."""
        tensors = self.tensors()
        names = [name for name, _ in tensors]
        ranks = [len(leaf.dims) for _, leaf in tensors]
        first = names[0]
        low = self.scan.terms.bounds.low
        lines = [
            f"given = ({', '.join(names)}{',' if len(names) == 1 else ''})",
            f"if num_steps < 1 or [one.dim() for one in given] != {ranks}:",
            "    return False",
            f"if any(one.device != {first}.device for one in given) or not {first}.is_cuda:",
            "    return False",
            "if torch.is_grad_enabled() and any(one.requires_grad for one in given):",
            "    return False",
            "if torch.is_autocast_enabled():",
            "    return False",
            *self.sizes(),
        ]
        dtypes: dict[str, list[str]] = {}
        for name, leaf in tensors:
            dtypes.setdefault(leaf.dtype, []).append(name)
        checks = [
            f"all(one.dtype == torch.{dtype} for one in ({', '.join(which)}))"
            if len(which) > 1
            else f"{which[0]}.dtype == torch.{dtype}"
            for dtype, which in dtypes.items()
        ]
        for name, leaf in tensors:
            expected = self.expected(name, leaf)
            own = f"({', '.join(f'{name}.shape[{i}]' for i in range(len(leaf.dims)))})"
            named = own
            for axis, letter in self.letters.items():
                named = named.replace(self.size_code(axis), f"num_{letter}")
            if named != expected and leaf.dims:
                checks.append(f"{name}.shape == {expected}")
        ends: dict[tuple[str, int], int] = {}
        for leaf in [*self.leaves, *(o.leaf for o in self.scan.outputs if o.leaf is not None)]:
            for at, one in enumerate(leaf.dims):
                if one.root() is self.time:
                    name = self.hosts.get(leaf.code, leaf.code)
                    ends[name, at] = max(ends.get((name, at), 0), low + leaf.offset)
        checks += [
            f"{name}.shape[{at}] >= {plus('num_steps', more)}" for (name, at), more in ends.items()
        ]
        if self.summed is not None:
            checks.append(f"num_{self.letters[self.summed]} <= {MOST_SUMMED}")
        for leaf in self.numbers:
            checks.append(f"isinstance({self.hosts[leaf.code]}, int | float)")
        joined = "\n    and ".join(checks)
        summary = f'"""Whether `{self.name}` can take these: on a GPU, without gradients."""'
        lines.append(f"return (\n    {joined}\n)")
        return function(f"{self.name}_fits", self.given(), [summary, *lines])

    def launcher(self) -> str:
        """Return the function that launches the kernel."""
        scan, low = self.scan, self.scan.terms.bounds.low
        start = plus("num_steps", low - 1) if scan.backwards else str(low)
        made = f"Run all steps of `{', '.join(scan.states)}` in one kernel."
        lines = [f'"""{made}"""', *self.sizes()]
        letters = [self.letters[one] for one in self.axes]
        rows = " * ".join(f"num_{one}" for one in letters) or "1"
        like = self.tensors()[0][0]
        lines.append(f"num_rows = {rows}")
        arguments = []
        for leaf in self.leaves:
            host = self.hosts[leaf.code]
            arguments.append(self.first_step(host, leaf, start))
        for one, _, _ in self.outputs():
            if one.leaf is not None:
                arguments.append(self.first_step(one.name, one.leaf, start))
                continue
            sizes = [
                "1"
                if axis is None or axis.root() not in self.letters
                else f"num_{self.letters[axis.root()]}"
                for axis in one.tile.dims
            ]
            if one.kind == "stack":
                sizes.insert(one.dim, "num_steps")
            elif one.kind == "cat":
                sizes[one.dim] = "num_steps"
            shape = ", ".join(sizes) or "()"
            lines.append(
                f"{self.result(one)} = torch.empty({shape}, device={like}.device)"
                if shape != "()"
                else f"{self.result(one)} = torch.empty((), device={like}.device)"
            )
            first = self.result(one)
            if one.backwards:
                first = f"{self.result(one)}.select({one.dim}, num_steps - 1)"
            arguments.append(first)
        arguments += ["num_steps", "num_rows", *(f"num_{one}" for one in letters[1:])]
        if self.summed is not None:
            arguments.append(f"num_{self.letters[self.summed]}")
        for leaf in self.leaves:
            arguments += self.given_strides(self.hosts[leaf.code], leaf.dims)
        for one, _, known in self.outputs():
            if one.leaf is not None:
                arguments += self.given_strides(one.name, one.leaf.dims)
                continue
            shift = one.dim if one.kind == "stack" else len(one.tile.dims)
            arguments += [f"{self.result(one)}.stride({at + (at >= shift)})" for at, _ in known]
            if one.kind != "final":
                arguments.append(f"{self.result(one)}.stride({one.dim})")
        arguments += [self.hosts[leaf.code] for leaf in self.numbers]
        width = "1"
        options = ["BLOCK=block"]
        if self.summed is not None:
            lines.append(f"width = triton.next_power_of_2(num_{self.letters[self.summed]})")
            width = "width"
            options.append("WIDTH=width")
        total = f"num_rows * {width}" if width != "1" else "num_rows"
        lines += [
            "# As many programs as a GPU runs at once, but a warp of elements or more in each.",
            f"size = min(max(triton.next_power_of_2({total}) // 512, 32), 1024)",
            f"block = max(size // {width}, 1)" if width != "1" else "block = size",
        ]
        options += ["STAGES=4", "num_warps=min(max(size // 128, 1), 8)"]
        call = ",\n        ".join([*arguments, *options])
        lines += [
            f"with torch.cuda.device({like}.device):",
            f"    {self.name}_kernel[(triton.cdiv(num_rows, block),)](\n        {call},\n    )",
        ]
        results = [self.result(one) for one in scan.outputs if one.kind != "write"]
        if results:
            lines.append(f"return {', '.join(results)}")
        return function(self.name, self.given(), lines)

    def result(self, output: Output) -> str:
        """Return what the launcher calls a tensor that it makes: a state may have the same name."""
        name = output.name
        while name in self.hosts.values():
            name += "_out"
        return name

    def first_step(self, name: str, leaf: Leaf, start: str) -> str:
        """Return the part of a tensor that the first step reads or writes."""
        for at, one in enumerate(leaf.dims):
            if one.root() is self.time:
                where = plus(start, leaf.offset)
                return name if where == "0" else f"{name}.select({at}, {where})"
        return name

    def given_strides(self, name: str, dims: tuple[Axis, ...]) -> list[str]:
        found = [f"{name}.stride({at})" for at, _ in self.known(dims)]
        return found + [
            f"{name}.stride({at})" for at, one in enumerate(dims) if one.root() is self.time
        ]

    # --- the change ------------------------------------------------------------------------------

    def change(self) -> Change:
        """Return the loop behind a check, with the kernel before it."""
        scan, loop = self.scan, self.scan.loop
        bounds = scan.terms.bounds
        taken = {one.value for one in in_order(loop.function) if isinstance(one, cst.Name)}
        inputs = "scanned"
        while inputs in taken:
            inputs += "_"
        written = [one.name for one in scan.outputs if one.kind == "write"]
        given = [plus(bounds.high, -bounds.low), *self.hosts, *written]
        results = [one.target for one in scan.outputs if one.kind != "write"]
        call = f"{self.name}(*{inputs})"
        if results:
            call = f"{', '.join(results)} = {call}"
        old = [loop.code(one).strip("\n") for one in scan.before]
        kept = cst.ensure_type(loop.node, cst.For).with_changes(leading_lines=[])
        old += [loop.code(kept).strip("\n"), *scan.after]
        if any('"""' in one or "'''" in one for one in old):
            raise Refused
        indent = loop.file.module.default_indent
        text = "\n".join(
            [
                f"{inputs} = ({', '.join(given)})",
                f"if {self.name}_fits(*{inputs}):",
                f"{indent}{call}",
                "else:",
                textwrap.indent("\n".join(old), indent),
            ]
        )
        definitions = "\n\n\n".join(["\n\n" + self.kernel(), self.fits(), self.launcher()]) + "\n"
        modules = MODULES | ({LIBDEVICE} if "libdevice." in definitions else frozenset())
        new = {**scan.new, **dict.fromkeys(scan.before, ""), loop.node: text}
        return Change(
            file=loop.name,
            new=new,
            found=shown_scan(scan),
            modules=modules,
            definitions=definitions,
        )


def names_of(code: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", code))


def place(name: str, letters: list[str]) -> Iterator[str]:
    """Yield the line that moves a pointer to a program's elements."""
    if letters:
        yield f"{name}_ptr += {' + '.join(f'{one} * {name}_{one}' for one in letters)}"


def closing(text: str, at: int) -> int:
    """Return where the bracket at a place is closed."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise Refused


def function(name: str, given: list[str], lines: list[str]) -> str:
    body = textwrap.indent("\n".join(lines), "    ")
    return f"def {name}({', '.join(given)}):\n{body}"
