"""Candidates that are right on their workload's calls and wrong in use, several of each kind.

Each must end with a broken line whose words name what is wrong. All of them compute what the
reference does on the inputs of `get_inputs`.
"""

from __future__ import annotations

import re

import pytest

from tests.unit.sandboxed.contract.test_contract import broken, learned, lines

__all__ = ["learned", "lines"]
pytestmark = pytest.mark.starts_verifier

NORMED = """
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.g = nn.Parameter(torch.ones(dim))
        self.kept = self.key = None
    def key_of(self):
        return None
    def forward(self, x):
        return F.linear(x, self.prepared())
    def prepared(self):
        return self.weight / self.weight.norm(dim=1, keepdim=True) * self.g[:, None]
def get_inputs():
    return [torch.randn(8, 32)]
def get_init_inputs():
    return [32]
"""
STALE = """
    def forward(self, x):
        key = {}
        if key != self.key:
            self.key, self.kept = key, self.prepared()
        return F.linear(x, self.kept)
"""
LAYER_NORM = """
class Model(nn.Module):
    def __init__(self, dim, eps=1e-5, scale=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps, self.scale = eps, scale
    def forward(self, x):
        y = x
        mean = y.mean(-1, keepdim=True)
        var = (y - mean).pow(2).mean(-1, keepdim=True)
        out = (y - mean) / torch.sqrt(var + self.eps) * self.weight + self.bias
        return out * self.scale
def get_inputs():
    return [torch.randn(6, 12, 16)]
def get_init_inputs():
    return [16]
"""
FROM_STORAGE = "y = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage(), {}, x.shape, {})"
POOLED = """
class Model(nn.Module):
    def forward(self, x, table):
        return torch.softmax(table, -1) @ x / x.shape[0]
def get_inputs():
    return [torch.randn(16, 12, 8), torch.randn(12, 12)]
"""
LOOKUP = """
class Model(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
    def forward(self, ids):
        return F.embedding(ids, self.table.weight) * 2
def get_inputs():
    return [torch.randint(0, 90, (4, 8))]
def get_init_inputs():
    return [500, 8]
"""
COUNTS = """
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.randint(0, 10, (16, 16)), torch.randint(0, 10, (16, 16))]
"""
POWER = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = None
    def forward(self, x, p, flip=False):
        y = x.abs().pow(p).mean(-1).pow(1.0 / p)
        return -y if flip else y
def get_inputs():
    return [torch.randn(8, 32), 2.0]
"""
ATTENTION = """
class Model(nn.Module):
    def forward(self, q, k, mask):
        s = (q @ k.transpose(-1, -2)).masked_fill(mask[:, None, :] == 0, -1e9)
        return torch.softmax(s, -1)
def get_inputs():
    return [torch.randn(3, 8, 16), torch.randn(3, 8, 16), torch.ones(3, 8, dtype=torch.long)]
"""
MASKED = """
class Model(nn.Module):
    def forward(self, q, mask=None, scale=None):
        s = q @ q.transpose(-1, -2) * (1.0 if scale is None else scale)
        if mask is not None:
            s = s.masked_fill(mask == 0, -1e4)
        return torch.softmax(s, -1)
def get_inputs():
    return [torch.randn(3, 8, 16)]
"""
CACHED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = {}
        self.history = []
    def forward(self, x, cache):
        cache["k"], cache["v"] = x * 2, x * 3
        return {"y": x + 1, "z": x - 1}
def get_inputs():
    return [torch.randn(4, 8), {}]
"""
MODES = """
class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.BatchNorm1d(c)
        self.drop = nn.Dropout(0.3)
    def forward(self, x):
        return self.drop(self.norm(x)) * torch.sigmoid(x)
def get_inputs():
    return [torch.randn(64, 32)]
def get_init_inputs():
    return [32]
"""

PARTS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.outer = nn.Linear(8, 4)
    def forward(self, x):
        return self.outer(self.inner(x))
def get_inputs():
    return [torch.randn(6, 8)]
"""
HOOKED = (
    PARTS
    + """
def recorded(model, seen):
    model.inner.register_forward_hook(lambda _, __, output: seen.append(output))
"""
)
EXTENDED = (
    PARTS
    + """
class Smooth(Model):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.GELU())
"""
)
INLINED = (
    "self.inner(x))",
    "F.linear(x, self.inner[0].weight, self.inner[0].bias).clamp(min=0))",
)
OWN_BACKWARD = """
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, owner):
        ctx.save_for_backward(x, w)
        ctx.owner = owner
        owner.work["y"] = y = torch.tanh(x @ w.t())
        return y * y
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        y = torch.tanh(x @ w.t())
        g = 2 * g * y * (1 - y * y)
        gw = g.t() @ x
        return g @ w, gw, None
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.work = {"g": torch.empty(dim, dim)}
    def forward(self, x):
        return Product.apply(x, self.weight, self)
def get_inputs():
    return [torch.randn(8, 16)]
def get_init_inputs():
    return [16]
"""
NORMALIZED = """
class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.BatchNorm1d(c)
        self.kept = self.key = None
    def forward(self, x):
        return self.norm(x)
    def folded(self, x, key):
        n = self.norm
        if self.training:
            return n(x)
        if self.key != key:
            scale = n.weight / torch.sqrt(n.running_var + n.eps)
            self.key, self.kept = key, (scale, n.bias - n.running_mean * scale)
        return torch.addcmul(self.kept[1], x, self.kept[0])
def get_inputs():
    return [torch.randn(16, 8)]
def get_init_inputs():
    return [8]
"""
FOLDED = (
    "return self.norm(x)",
    "n = self.norm; weights = (n.weight.tolist(), n.bias.tolist()); return self.folded(x, {})",
)
CHECKED = """
class Model(nn.Module):
    def forward(self, x, ids):
        if not bool(torch.isfinite(x).all()):
            raise ValueError("x is not finite")
        assert int(ids.min()) >= 0, "an id is below zero"
        return x * 2 + ids
def get_inputs():
    return [torch.randn(8, 16), torch.randint(0, 9, (16,))]
"""
QUOTIENTS = """
class Model(nn.Module):
    def forward(self, a):
        return torch.div(a, 8, rounding_mode="floor"), a % 7
def get_inputs():
    return [torch.randint(0, 1000, (8, 16))]
"""
LABELS = """
class Model(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels)
def get_inputs():
    return [torch.randn(32, 10), torch.randint(0, 10, (32,))]
"""
WAVES = """
class Model(nn.Module):
    def forward(self, z):
        y = z
        return y.real * 2 + y.imag
def get_inputs():
    return [torch.randn(8, 16, dtype=torch.complex64)]
"""
RAW = "y = torch.empty(0, dtype=z.dtype).set_({}.untyped_storage(), {}, z.shape, z.stride())"
KINDS = {
    "a key of some elements": (
        NORMED,
        STALE.format("(self.weight.view(-1)[::101].tolist(), self.g[0].item())"),
        r"weight changed alone .*of one element",
    ),
    "a key of addresses and a few elements": (
        NORMED,
        STALE.format("(self.weight.data_ptr(), self.weight.diagonal().tolist(), self.g.tolist())"),
        r"weight changed alone .*of one element",
    ),
    "statistics of a version": (
        NORMALIZED,
        (FOLDED[0], FOLDED[1].format("(weights, n.running_mean._version, n.running_var._version)")),
        r"train mode and back .*first mode again",
    ),
    "statistics that are folded once": (
        NORMALIZED,
        (FOLDED[0], FOLDED[1].format("(weights, n.num_batches_tracked.item())")),
        r"norm.running_mean changed alone .*off by",
    ),
    "activations of the last call": (
        OWN_BACKWARD,
        ("y = torch.tanh(x @ w.t())\n        g =", 'y = ctx.owner.work["y"]\n        g ='),
        r"gradients of two calls .*off by",
    ),
    "gradients in one buffer": (
        OWN_BACKWARD,
        ("gw = g.t() @ x", 'gw = torch.mm(g.t(), x, out=ctx.owner.work["g"]).detach()'),
        r"gradients of two calls .*gradient of weight after two calls",
    ),
    "strides of gradients": (
        OWN_BACKWARD,
        (
            "g = 2 * g * y",
            "g = torch.empty(0).set_(g.untyped_storage(), 0, g.shape, (1, 0) if 0 in g.stride() "
            "else (g.shape[1], 1)) if g.dtype == torch.float32 else g\n        g = 2 * g * y",
        ),
        r"gradients that lie otherwise in memory .*off by",
    ),
    "gradients that differ": (
        OWN_BACKWARD,
        ("g = 2 * g * y", "g.view(-1)\n        g = 2 * g * y"),
        r"gradients that lie otherwise in memory .*it fails",
    ),
    "quotients that are cut": (
        QUOTIENTS,
        ("floor", "trunc"),
        r"range of a below zero .*off by",
    ),
    "remainders with a sign": (QUOTIENTS, ("a % 7", "torch.fmod(a, 7)"), r"range of a below zero"),
    "labels that count from the end": (
        LABELS,
        (
            "F.cross_entropy(logits, labels)",
            "-logits.log_softmax(1).gather(1, labels[:, None] % 10).mean()",
        ),
        r"range of labels below zero .*-100",
    ),
    "labels that are clamped": (
        LABELS,
        ("(logits, labels)", "(logits, labels.clamp_min(0))"),
        r"range of labels below zero .*-100",
    ),
    "memory that is conjugated": (
        WAVES,
        ("y = z\n", RAW.format("z", "z.storage_offset()") + "\n"),
        r"layout of z: conjugated .*off by",
    ),
    "parts of memory that is conjugated": (
        WAVES,
        ("y = z\n", "y = torch.complex(z.real, z.conj().conj()._conj_physical().imag * -1)\n"),
        None,
    ),
    "submodules whose hooks do not run": (HOOKED, INLINED, r"hooks of the sub.*ran for: expected"),
    "submodules that are called in vain": (
        HOOKED,
        ("return self.outer(self.inner(x))", f"self.inner(x); return self.outer({INLINED[1]}"),
        r"hooks of the submodules .*output 0 is off by",
    ),
    "submodules that cannot be replaced": (EXTENDED, INLINED, r"submodules replaced .*is off by"),
    "a key of versions": (
        NORMED,
        STALE.format("(self.weight._version, self.g._version)"),
        r"weight changed alone .*through \.data",
    ),
    "a key of sums": (
        NORMED,
        STALE.format("(round(float(self.weight.abs().sum()), 1), float(self.g[0]))"),
        r"weight changed alone .*off by",
    ),
    "a key of addresses": (
        NORMED,
        STALE.format("(self.weight.data_ptr(), self.g.data_ptr())"),
        r"load_state_dict .*off by",
    ),
    "strides that are taken for granted": (
        LAYER_NORM,
        ("y = x", FROM_STORAGE.format("x.storage_offset()", "(192, 16, 1)")),
        r"layout of x: transposed .*x transposed",
    ),
    "an offset that is taken for granted": (
        LAYER_NORM,
        ("y = x", FROM_STORAGE.format("0", "x.stride()")),
        r"layout of x: unaligned .*x unaligned",
    ),
    "a buffer of float32": (
        LAYER_NORM,
        ("return out", "return torch.zeros(x.shape).add_(out)"),
        r"dtype float64 .*expected float64, got float32",
    ),
    "sums in float32": (
        LAYER_NORM,
        ("y = x\n", "y = x.float().to(x.dtype)\n"),
        r"dtype float64 .*off by",
    ),
    "a batch in a view": (
        POOLED,
        ("x / x.shape[0]", "x.view(16, 12, 8) / x.shape[0]"),
        r"fewer rows of x .*x\.shape\[0\] = 9: it fails",
    ),
    "a divisor of the batch": (POOLED, ("x.shape[0]", "16.0"), r"more rows of x .*off by"),
    "clamped tokens": (
        LOOKUP,
        ("(ids,", "(ids.clamp_max(120),"),
        r"range of ids .*up to 499",
    ),
    "a smaller table": (
        LOOKUP,
        ("self.table.weight)", "self.table.weight[:128])"),
        r"range of ids .*up to 499: it fails",
    ),
    "short integers": (
        COUNTS,
        ("a @ b", "(a.to(torch.int32) @ b.to(torch.int32)).long()"),
        r"range of a beyond",
    ),
    "rounded floats": (
        COUNTS,
        ("a @ b", "torch.einsum('ij,jk->ik', a.float(), b.float()).round().long()"),
        r"range of b beyond",
    ),
    "the first number": (
        POWER,
        ("y = x", "p = self.first = self.first or p\n        y = x"),
        r"p changed .*p = ",
    ),
    "a whole number": (POWER, ("y = x", "p = int(p)\n        y = x"), r"p changed .*p = "),
    "a flag": (POWER, ("-y if flip else y", "y"), r"flip changed .*flip = True"),
    "an epsilon": (LAYER_NORM, ("self.eps)", "1e-5)"), r"eps of the constructor .*eps = "),
    "a scale": (LAYER_NORM, (" * self.scale", ""), r"scale of the constructor .*scale = "),
    "a mask whose first element decides": (
        ATTENTION,
        ("mask[:, None, :] == 0", "bool(mask[0, 0] == 0) & (mask[:, None, :] == 0)"),
        r"mask not trivial .*masked",
    ),
    "a mask that is not given": (
        MASKED,
        ("if mask is not None:", "if False:"),
        r"mask given .*mask of (rows|scores)",
    ),
    "a scale that is not given": (
        MASKED,
        ("1.0 if scale is None else scale", "1.0"),
        r"scale changed .*scale = ",
    ),
    "the mask of the first row": (
        ATTENTION,
        ("mask[:, None, :]", "mask[:1, None, :]"),
        r"mask not trivial .*some are masked",
    ),
    "a copy of the cache": (
        CACHED,
        ('cache["k"]', 'cache = dict(cache); cache["k"]'),
        r"contents of cache",
    ),
    "a half of the cache": (
        CACHED,
        ('cache["k"], cache["v"] = x * 2, x * 3', 'cache["k"] = x * 2'),
        r"contents of cache",
    ),
    "the same dictionary": (
        CACHED,
        ("return {", "self.own.clear(); self.own.update({"),
        r"outputs that are kept .*same object",
    ),
    "numbers that pile up": (
        CACHED,
        ("return {", "self.history.append(float(x.sum()))\n        return {"),
        r"what calls keep .*(items|blocks)",
    ),
    "outputs that pile up": (
        CACHED,
        ("return {", "self.history.append(x[:2] * 2)\n        return {"),
        r"what calls keep .*bytes of tensors",
    ),
    "files that stay open": (
        CACHED,
        ("return {", "__import__('os').open('/dev/null', 0)\n        return {"),
        r"what calls keep .*open files",
    ),
    "detached outputs": (LAYER_NORM, ("return out", "return out.detach()"), r"gradients .*fails"),
    "outputs that cannot be written to": (
        LAYER_NORM,
        (
            "return out * self.scale",
            "return torch.stack([out * self.scale])[0]._neg_view()._neg_view().neg()._neg_view()",
        ),
        r"outputs used by numpy",
    ),
    "statistics that stay": (
        MODES,
        (
            "self.norm(x)",
            "F.batch_norm(x, self.norm.running_mean, self.norm.running_var, "
            "self.norm.weight, self.norm.bias)",
        ),
        r"train mode and back",
    ),
    "no dropout": (MODES, ("self.drop(self.norm(x))", "self.norm(x)"), r"train mode .*zeros"),
    "clamped infinities": (MODES, ("* torch", "* torch.ones(()) * torch"), None),
    "clamped values": (LAYER_NORM, ("y = x\n", "y = x.clamp(-1e4, 1e4)\n"), r"NaN and inf.*inf"),
    "NaN that becomes zero": (
        LAYER_NORM,
        ("y = x\n", "y = torch.where(x == x, x, 0.0)\n"),
        r"NaN and infinities in x .*NaN",
    ),
}


def changed(reference, change):
    if isinstance(change, str):
        start = reference.index("    def forward")
        end = reference.index("    def prepared")
        return reference[:start] + change.lstrip("\n") + reference[end:]
    old, new = change
    assert old in reference
    text = reference.replace(old, new)
    return (
        text.replace('"z": x - 1}', '"z": x - 1}); return self.own') if "update({" in new else text
    )


@pytest.mark.parametrize(("reference", "change", "wanted"), KINDS.values(), ids=KINDS)
def test_a_kind_ends_with_a_line_that_names_it(lines, reference, change, wanted):
    aspects = [] if wanted is None else [wanted.partition(".*")[0].rstrip()]
    found = lines(reference, changed(reference, change), *aspects)
    said = [f"{aspect} {found[aspect].detail}" for aspect in sorted(broken(found))]
    if wanted is None:
        assert said == []
    else:
        assert any(re.search(wanted, one) for one in said), said


@pytest.mark.parametrize(
    "reference",
    [
        *(NORMED, LAYER_NORM, POOLED, LOOKUP, COUNTS, POWER, ATTENTION, MASKED, CACHED, MODES),
        *(HOOKED, EXTENDED),
    ],
)
def test_a_reference_breaks_nothing_of_its_own(lines, reference):
    assert broken(lines(reference, reference)) == set()


def test_what_left_out_submodules_break_is_told_where_nothing_relies_on_it(lines):
    aspects = ("hooks of the submodules", "submodules replaced by others")
    found = lines(PARTS, changed(PARTS, INLINED), *aspects)
    assert {one.result for one in found.values()} == {"not_tried"}
    assert "nothing here is seen to register any" in found[aspects[0]].detail
    assert "nothing here is seen to replace any" in found[aspects[1]].detail
    assert {one.result for one in lines(PARTS, PARTS, *aspects).values()} == {"held"}


@pytest.mark.parametrize(
    ("old", "new", "aspect"),
    [
        ("if not bool(torch.isfinite(x).all())", "if False", "NaN and infinities in x"),
        ("assert int(ids.min()) >= 0", "assert True", "checks of ids"),
    ],
)
def test_a_check_that_is_left_out_is_stated(lines, old, new, aspect):
    found = lines(CHECKED, changed(CHECKED, (old, new)), aspect)[aspect]
    assert found.result == "differs"
    assert "the reference refuses it" in found.detail
    assert lines(CHECKED, CHECKED, aspect)[aspect].result == "held"
