"""On which machines of a cluster programs are built, on a stand-in for Ray."""

from __future__ import annotations

import os
from types import SimpleNamespace

import msgspec
import pytest

from cudal1_ci.errors import UnsupportedError, WorkerError
from cudal1_ci.pool import builders
from cudal1_ci.pool.builders import Builder, RemoteBuilder, builder_for
from cudal1_ci.pool.sessions import SessionConfig
from cudal1_ci.verification import BuildsConfig
from cudal1_ci.verification.prebuild import store_of


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__("a long traceback")
        self.cause = cause


class Timeout(RayError):
    pass


class Ray:
    """Actors are objects of this process."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *machines):
        self.machines, self.granted, self.killed, self.timeouts = machines, [], [], []
        self.error = None

    def nodes(self):
        return [
            {"NodeID": f"n{number}", "Alive": resources is not None, "Resources": resources or {}}
            for number, resources in enumerate(self.machines)
        ]

    def cluster_resources(self):
        return {"GPU": float(sum((one or {}).get("GPU", 0) for one in self.machines))}

    def remote(self, actor_class):
        def options(**granted):
            self.granted.append(granted)
            return SimpleNamespace(remote=lambda *given: self.made(actor_class, given))

        return SimpleNamespace(options=options)

    def made(self, actor_class, given):
        actor = actor_class(*given)
        return SimpleNamespace(
            itself=actor, ask=SimpleNamespace(remote=lambda *asked: lambda: actor.ask(*asked))
        )

    def get(self, reference, timeout):
        self.timeouts.append(timeout)
        if self.error:
            raise self.error
        try:
            return reference()
        except WorkerError as error:
            raise RayTaskError(error) from error

    def kill(self, actor):
        self.killed.append(actor)


class Worker:
    """In the actor."""

    def __init__(self):
        self.asked = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def ask(self, request, timeout_s):
        if request["op"] == "dies":
            raise WorkerError("the builder ended")
        self.asked.append(request)
        return {"is_kept": True, "timeout_s": timeout_s}


@pytest.fixture(autouse=True)
def workers(monkeypatch):
    made = []

    def start(self, role, *, num_threads, device):
        assert (role, device) == ("builder", "none")
        made.append(Worker())
        return made[-1]

    monkeypatch.setattr(builders.Local, "start", start)
    monkeypatch.setattr(builders, "on_node", lambda node: node["NodeID"])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    return made


GPUS, CPUS = {"CPU": 64.0, "GPU": 4.0}, {"CPU": 16.0}
CONFIG = SessionConfig()


def test_seats_share_the_machines_without_a_gpu_evenly(workers):
    ray = Ray(GPUS, CPUS, {"CPU": 0.0}, None, CPUS | {"GPU": 0.0})
    found = [builder_for(ray, CONFIG, number) for number in range(4)]
    assert [one["scheduling_strategy"] for one in ray.granted] == ["n1", "n4", "n1", "n4"]
    assert [one["num_cpus"] for one in ray.granted] == [8] * 4
    assert {one["num_gpus"] for one in ray.granted} == {0}
    for one in found:
        one.ask({"op": "open", "store": "of the judge", "cores": [63], "num_at_once": 9}, 5.0)
    opened = [worker.asked[0] for worker in workers]
    halves = [list(range(8)), list(range(8, 16))]
    assert [one["cores"] for one in opened] == [halves[0], halves[0], halves[1], halves[1]]
    assert {one["num_at_once"] for one in opened} == {8}
    assert opened[0]["store"] == store_of(CONFIG.builds), "of the machine that it is on"


def test_more_seats_than_cores_have_one_each(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    ray = Ray({"CPU": 64.0, "GPU": 8.0}, {"CPU": 2.0})
    parts = [builder_for(ray, CONFIG, number).actor.itself.own["cores"] for number in range(8)]
    assert {one["num_cpus"] for one in ray.granted} == {1}
    assert all(parts) and {core for part in parts for core in part} == {0, 1}


@pytest.mark.parametrize(
    ("machines", "config"),
    [
        ([GPUS, GPUS], CONFIG),
        ([GPUS, None], CONFIG),
        ([GPUS, CPUS], SessionConfig(builds=BuildsConfig(num_processes=0))),
    ],
)
def test_where_there_is_none_or_none_is_wanted_nothing_is_begun(machines, config):
    ray = Ray(*machines)
    assert builder_for(ray, config, 0) is None
    assert ray.granted == []


def test_what_is_asked_crosses_as_bytes_and_is_not_waited_for_for_ever():
    ray = Ray(GPUS, CPUS)
    remote = builder_for(ray, CONFIG, 0)
    assert remote.ask({"op": "poll", "wait_s": 0.5}, 5.0) == {"is_kept": True, "timeout_s": 5.0}
    assert ray.timeouts == [5.0 + builders.MORE_S]
    remote.close()
    assert ray.killed == [remote.actor]


@pytest.mark.parametrize(
    "error",
    [
        RayError("the actor is dead"),
        Timeout("no answer"),
        RayTaskError(KeyError("of another version")),
        RayTaskError(UnsupportedError("no such interpreter")),
        None,
    ],
)
def test_whatever_is_lost_is_the_builder_s_end(error):
    """The machine, the actor, or the worker in it."""
    ray = Ray(GPUS, CPUS)
    remote = builder_for(ray, CONFIG, 0)
    ray.error = error
    with pytest.raises(WorkerError, match="the builder elsewhere is gone"):
        remote.ask({"op": "dies"}, 5.0)


def test_a_ray_that_does_not_answer_is_no_reason_to_fail():
    ray = Ray(GPUS, CPUS)

    def nodes():
        raise RayError("no head")

    ray.nodes = nodes
    with pytest.raises(WorkerError, match="no head"):
        builder_for(ray, CONFIG, 0)


def test_an_actor_that_is_gone_is_ended_without_a_word():
    ray, ended = Ray(GPUS, CPUS), []

    def kill(actor):
        ended.append(actor)
        raise ValueError("not an actor")

    ray.kill = kill
    RemoteBuilder(ray, "gone").close()
    assert ended == ["gone"]


def test_the_interpreter_of_the_project_builds_there(monkeypatch):
    seen = []

    def start(self, role, *, num_threads, device):
        seen.append((self.python, num_threads))
        return Worker()

    monkeypatch.setattr(builders.Local, "start", start)
    config = SessionConfig(python="/of/the/project")
    Builder(msgspec.msgpack.encode(config), 0, 1)
    assert seen == [("/of/the/project", config.trial.threads)]
