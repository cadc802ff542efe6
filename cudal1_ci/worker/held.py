"""What a module holds, read where torch keeps it and not by the module's own methods.

A program may override `parameters`, `state_dict` or `zero_grad`, and do in them the work that its
timed calls put off: they are asked for outside of any clock. So they are asked only where the state
is more than parameters and buffers, as packed weights are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch


def members(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The module and all below it with their prefixes, each once, in torch's order."""
    seen: set[int] = set()
    waiting = [("", module)]
    while waiting:
        prefix, one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield prefix, one
        below = [(f"{prefix}{name}.", each) for name, each in vars(one)["_modules"].items()]
        waiting += [(name, each) for name, each in reversed(below) if each is not None]


def parameters_of(module: torch.nn.Module | None) -> list[torch.nn.Parameter]:
    """Each once, in torch's order."""
    if module is None:
        return []
    every = [one for _, each in members(module) for one in vars(each)["_parameters"].values()]
    return list({id(one): one for one in every if one is not None}.values())


def forget_gradients(module: torch.nn.Module | None) -> None:
    """As `zero_grad` does."""
    for parameter in parameters_of(module):
        parameter.grad = None


def plain_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers that last by their keys, those that are shared under each of theirs:
    what `state_dict` says of a module that says nothing of its own."""
    found: dict[str, torch.Tensor] = {}
    waiting = [("", module)]
    while waiting:
        prefix, one = waiting.pop()
        own = vars(one)
        passing = own.get("_non_persistent_buffers_set", ())
        lasting = {k: v for k, v in own["_buffers"].items() if k not in passing}
        for name, tensor in {**own["_parameters"], **lasting}.items():
            if tensor is not None:
                found[prefix + name] = tensor
        below = [(f"{prefix}{name}.", each) for name, each in own["_modules"].items()]
        waiting += [(name, each) for name, each in reversed(below) if each is not None]
    return found


def told_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What `state_dict` says; other extra state does not travel."""
    state = module.state_dict(keep_vars=True)
    return {key: t for key, t in state.items() if isinstance(t, torch.Tensor)}


def is_plain(module: torch.nn.Module) -> bool:
    """Whether its `state_dict` is parameters and buffers alone."""
    told, plain = told_state(module), plain_state(module)
    return list(told) == list(plain) and all(told[key] is plain[key] for key in told)
