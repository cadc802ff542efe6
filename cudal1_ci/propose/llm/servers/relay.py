"""Keep the keys of models in another process than the one that measures.

    keep_keys_apart(["OPENAI_API_KEY"], [("https://api.example.com/v1", "OPENAI_API_KEY")])
    # started again: the variable holds no key now

Where code runs that no person has read, no ancestor of it may hold a key: what a process was
started with stays in its memory. So a program that is given a key forks a relay, and replaces
itself by itself, with the address of the relay and a secret of this run in the key's place. The
relay forwards requests with that secret to the URLs that it was made with, and adds the key. It
ends with the program.

Covered: a reader of the program's memory, environment, files and log finds no key, and cannot send
one elsewhere. Not covered: one that has the secret and reaches this machine's loopback can ask the
model while the program runs. What is sandboxed has neither.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import signal
from collections.abc import Iterable

from cudal1_ci.unreadable import has_made_unreadable, make_unreadable, start_again

RELAYED = re.compile(r"[0-9a-f]{32}@(127\.0\.0\.1:\d+)")
"""What a key's variable holds instead of the key."""
NO_RELAY = f"{'0' * 32}@127.0.0.1:0"
"""The same where no URL may get the key: that there is one can still be seen, and refused."""


def keep_keys_apart(names: Iterable[str], routed: Iterable[tuple[str, str]]) -> None:
    """Start this program again without the keys in the variables of these names, where it has any
    and is the command line's own process. `routed` has the URLs that the relay forwards to, each
    with the name of its key.
    """
    if not has_made_unreadable():
        return
    given = {name: os.environ.get(name, "").strip() for name in names}
    keys = {name: key for name, key in given.items() if key and not RELAYED.fullmatch(key)}
    if not keys:
        return
    routes = {
        route(api_url(url)): (api_url(url), keys[name]) for url, name in routed if name in keys
    }
    secret = started(routes) if routes else NO_RELAY
    start_again({**os.environ, **dict.fromkeys(keys, secret)})


def api_url(given: str) -> str:
    """Return the URL with its version, which users write or leave out."""
    url = given.rstrip("/").removesuffix("/chat/completions")
    return url if re.match(r"https?://[^/]+/", url) else url + "/v1"


def route(url: str) -> str:
    """Return the first part of a relayed request's path, which names its server."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def relayed_url(url: str, key: str | None) -> str | None:
    """Return where a relay is asked for this URL; None where the key is one, or is missing."""
    found = RELAYED.fullmatch(key or "")
    return f"http://{found[1]}/{route(url)}" if found else None


def started(routes: dict[str, tuple[str, str]]) -> str:
    """Fork the relay. Return what takes the place of the keys."""
    from cudal1_ci.propose.llm.servers.relay_server import RelayServer

    secret = secrets.token_hex(16)
    server = RelayServer(routes, secret)
    alive, ours = os.pipe()
    if os.fork() == 0:
        try:
            make_unreadable()
            os.close(ours)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program still has to finish
            silent = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(silent, descriptor)
            server.serve_until_closed(alive)
        finally:
            os._exit(0)
    os.close(alive)
    server.server_close()
    os.set_inheritable(ours, True)  # it closes with the program
    return f"{secret}@127.0.0.1:{server.server_address[1]}"
