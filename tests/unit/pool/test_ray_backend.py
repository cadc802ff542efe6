"""Slots of Ray, on a stand-in for Ray: what is asked of it, and what its errors mean for a slot."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import msgspec
import pytest

import cudal1_ci.pool.actor as actor
import cudal1_ci.pool.ray as room
from cudal1_ci.errors import ConfigError, UnsupportedError, WorkerError
from cudal1_ci.pool import Pool, RayBackend, SessionConfig, SlotLost
from cudal1_ci.pool.actor import Introduction
from cudal1_ci.records import Demand
from cudal1_ci.records.recording import Recording
from cudal1_ci.records.run_status import Ending
from cudal1_ci.verification import TrialConfig
from cudal1_ci.verification.crossing import record
from tests.fakes import FakeSession, a_candidate, a_problem, a_workload
from tests.unit.sandboxed.messages import recording

CONFIG = SessionConfig(trial=TrialConfig(seed=7, call_s=20))
"""With a whole number of seconds, which comes back as another number of the same value."""
ANSWERS = {f"try {index}": ("passed", 2.0) for index in range(4)}


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__("a long traceback")
        self.cause = cause


class FakeRay:
    """Actors are objects of this process; a reference is what makes the value."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7")

    def __init__(self, num_gpus=0, num_machines=1):
        self.resources = {"CPU": 8.0} | ({"GPU": float(num_gpus)} if num_gpus else {})
        self.num_machines = num_machines
        self.granted = []
        self.killed = []
        self.is_up = False
        self.has_room = True
        self.init_error = None
        self._private = SimpleNamespace(worker=SimpleNamespace(_worker_logs_enabled=True))

    def is_initialized(self):
        return self.is_up

    def init(self, **settings):
        if self.init_error:
            raise self.init_error
        self.is_up, self.settings = True, settings

    def shutdown(self):
        self.is_up = False

    def cluster_resources(self):
        return self.resources

    def nodes(self):
        return [{"Alive": True}] * self.num_machines + [{"Alive": False}]

    def get_gpu_ids(self):
        return ["3"] if self.granted[-1]["num_gpus"] else []

    def wait(self, references, timeout):
        return (references, []) if self.has_room else ([], references)

    def get(self, reference):
        try:
            return reference()
        except RayError:
            raise
        except Exception as error:
            raise RayTaskError(error) from error

    def kill(self, killed):
        self.killed.append(killed)

    def remote(self, actor_class):
        return SimpleNamespace(options=lambda **granted: self.factory(actor_class, granted))

    def factory(self, actor_class, granted):
        self.granted.append(granted)
        return SimpleNamespace(remote=lambda *arguments: FakeActor(actor_class(*arguments)))


class FakeActor:
    def __init__(self, judge):
        self.judge_itself = judge
        self.introduce = SimpleNamespace(remote=lambda: judge.introduce)

    def __getattr__(self, method):
        asked = getattr(self.judge_itself, method)
        return SimpleNamespace(remote=lambda *arguments: lambda: asked(*arguments))


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    for module in (room, actor):
        monkeypatch.setattr(module, "ray_module", lambda: fake)
    monkeypatch.setattr(SessionConfig, "session", lambda self, device: FakeSession(ANSWERS))
    monkeypatch.setattr("os.setpriority", lambda *_: None)
    monkeypatch.setattr("os.getpriority", lambda *_: 0)
    return fake


def the_task():
    problem = a_problem()
    return problem, [a_candidate(problem, source) for source in ANSWERS]


def never():
    return False


def test_a_slot_for_each_gpu_of_the_cluster(ray):
    ray.resources["GPU"] = 5.0
    with RayBackend(CONFIG) as backend:
        assert (backend.device, backend.num_slots) == ("cuda", 5)
        assert ray.settings["address"] == "auto"
        assert not ray._private.worker._worker_logs_enabled, "Ray prints to stdout"
        slot = backend.open(0, never)
    assert ray.granted[0]["num_gpus"] == 1
    assert slot.name == "10.0.0.7 GPU 3"
    assert not ray.is_up


def test_without_gpus_a_slot_for_each_machine_that_is_there(ray):
    ray.num_machines = 3
    with RayBackend(CONFIG) as backend:
        assert (backend.device, backend.num_slots) == ("cpu", 3)
        assert [backend.open(number, never).name for number in range(2)] == [
            "10.0.0.7 CPU #0",
            "10.0.0.7 CPU #1",
        ]
    assert ray.granted[0]["num_gpus"] == 0


def test_a_cluster_that_is_started_here_has_nothing_beside_what_is_timed(ray, monkeypatch):
    for name in room.OWN_CLUSTER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_worker_niceness", "5")
    with RayBackend(CONFIG, address="local"):
        kept = {name: os.environ[name] for name in room.OWN_CLUSTER}
    assert kept == dict.fromkeys(room.OWN_CLUSTER, "0") | {"RAY_worker_niceness": "5"}


def test_a_connection_of_the_caller_is_left_to_the_caller(ray):
    ray.is_up = True
    with RayBackend(CONFIG):
        pass
    assert ray.is_up


def test_work_is_done_through_actors(ray):
    problem = a_problem()
    candidates = [a_candidate(problem, source) for source in ANSWERS]
    with RayBackend(CONFIG, num_slots=2) as backend, Pool(backend, notice=print) as pool:
        found = pool.map(
            candidates,
            lambda candidate, verifier: verifier.evaluate(problem, candidate),
            is_over=never,
            run_status=Ending(),
        )
    assert [one.result.candidate for one in found] == candidates
    assert {one.result.verdict.status for one in found} == {"passed"}
    assert len(ray.killed) == len(ray.granted)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (WorkerError("torch is not installed"), SlotLost),
        (UnsupportedError("the sandbox is required"), UnsupportedError),
        (RuntimeError("a bug"), RayTaskError),
    ],
)
def test_what_an_actor_says_at_its_start_keeps_its_meaning(ray, monkeypatch, error, meaning):
    def device(self):
        raise error

    monkeypatch.setattr(FakeSession, "device", device)
    with RayBackend(CONFIG) as backend, pytest.raises(meaning):
        backend.open(0, never)
    assert len(ray.killed) == 1


@pytest.mark.parametrize("field", ["version", "policy"])
def test_a_machine_with_another_version_is_refused(ray, monkeypatch, field):
    said = actor.VerifierActor.introduce

    def introduce(self):
        ours = msgspec.msgpack.decode(said(self), type=Introduction)
        return msgspec.msgpack.encode(msgspec.structs.replace(ours, **{field: "0.0.9"}))

    monkeypatch.setattr(actor.VerifierActor, "introduce", introduce)
    with (
        RayBackend(CONFIG) as backend,
        pytest.raises(ConfigError, match="install the same version"),
    ):
        backend.open(0, never)
    assert len(ray.killed) == 1


def test_who_waits_for_a_machine_gives_up_when_all_is_done(ray):
    ray.has_room = False
    asked = iter([False, False, True])
    with RayBackend(CONFIG) as backend, pytest.raises(SlotLost, match="no machine had a device"):
        backend.open(0, lambda: next(asked))
    assert len(ray.killed) == 1


def test_judges_that_give_way_to_others_are_told_of(ray, monkeypatch):
    monkeypatch.setattr("os.getpriority", lambda *_: 15)
    with RayBackend(CONFIG) as backend:
        assert "niceness 15" in (backend.open(0, never).remark or "")


def test_a_cluster_without_a_gpu_has_no_slot_on_one(ray):
    with pytest.raises(UnsupportedError, match="has no GPU; use --device cpu"):
        RayBackend(CONFIG, device="cuda").__enter__()
    assert not ray.is_up


def test_ray_and_not_the_user_chooses_which_gpu(ray):
    with pytest.raises(ConfigError, match="got cuda:1"):
        RayBackend(CONFIG, device="cuda:1")


@pytest.mark.parametrize("kind", [ConnectionError, Exception])
def test_an_address_at_which_nobody_answers(ray, kind):
    ray.init_error = kind("Could not find any running Ray instance")
    with pytest.raises(UnsupportedError, match="ray start --head"):
        RayBackend(CONFIG, address="10.0.0.1:6379").__enter__()


def test_without_ray_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'cudal1-ci\[ray\]'"):
        RayBackend(CONFIG)


# --- the verifier of an actor, asked as if it were a session here --------------------------------


class Profiled(FakeSession):
    def profile(self, workload, *, is_candidate):
        return [{"name": workload, "time_us": 1.5}] if is_candidate else "nothing was seen"

    def demand(self, workload):
        return Demand(num_bytes=12, dtype="float32") if workload == "small" else "unknown"

    def record(self, problem, workload):
        if workload.name != "small":
            return f"{problem.id} was not recorded"
        return record(recording(), Recording)


@pytest.fixture
def session(ray, monkeypatch):
    """Of the actor, which has none before its slot is opened."""
    made = Profiled(ANSWERS)
    monkeypatch.setattr(SessionConfig, "session", lambda *_, **__: made)
    return made


def test_a_session_that_is_elsewhere_says_what_it_would_say_here(ray, session):
    problem, candidates = the_task()
    with RayBackend(CONFIG) as backend:
        remote = backend.open(0, never).verifier
        assert remote.device() == session.device()
        assert remote.check(problem) == session.check(problem)
        assert remote.evaluate(problem, candidates[2]) == session.evaluate(problem, candidates[2])
        assert remote.profile("small", is_candidate=True) == [{"name": "small", "time_us": 1.5}]
        assert remote.profile("small", is_candidate=False) == "nothing was seen"
        assert remote.demand("small") == Demand(num_bytes=12, dtype="float32")
        assert remote.demand("other") == "unknown"
        found = remote.record(problem, a_workload("small"))
        assert found == session.record(problem, a_workload("small"))
        assert isinstance(found, Recording) and found.frames[1].function == "f"
        assert remote.record(problem, a_workload("other")) == f"{problem.id} was not recorded"
        assert list(remote.in_turn(candidates)) == candidates


def test_what_compiles_is_built_ahead_there_and_comes_when_it_is_ready(ray, session, monkeypatch):
    problem = a_problem()
    plain = a_candidate(problem, "try 0")
    built = [a_candidate(problem, f"load_inline({index})") for index in range(3)]
    monkeypatch.setattr(session, "in_turn", lambda candidates: reversed(candidates), raising=False)
    with RayBackend(CONFIG) as backend:
        remote = backend.open(0, never).verifier
        remote.build_ahead(problem, [built[0], plain, *built[1:]])
        assert session.built == [one.id for one in built]
        found = list(remote.in_turn([built[0], plain, *built[1:]]))
    assert found == [plain, built[2], built[1], built[0]]


def test_a_build_elsewhere_is_waited_for_until_it_is_over(ray, session, monkeypatch):
    problem = a_problem()
    built = [a_candidate(problem, f"load_inline({index})") for index in range(2)]
    with RayBackend(CONFIG) as backend:
        remote = backend.open(0, never).verifier
        remote.build_ahead(problem, built)
        asked = iter([False, True, True])
        monkeypatch.setattr(ray, "wait", lambda references, timeout: ([], references))
        assert list(remote.in_turn(built, lambda: next(asked))) == built
        assert next(asked, None) is None


def test_an_actor_whose_judge_died_is_kept_and_asked_again(ray, session, monkeypatch):
    problem, candidates = the_task()

    def died(problem, candidate):
        raise WorkerError("killed by signal 9")

    with RayBackend(CONFIG) as backend:
        remote = backend.open(0, never).verifier
        with monkeypatch.context() as patched:
            patched.setattr(session, "evaluate", died)
            with pytest.raises(WorkerError, match="killed by signal 9"):
                remote.evaluate(problem, candidates[0])
        assert remote.evaluate(problem, candidates[0]).verdict.status == "passed"


def test_a_session_whose_actor_is_gone_is_a_lost_slot(ray, session, monkeypatch):
    problem, _ = the_task()
    with RayBackend(CONFIG) as backend:
        remote = backend.open(0, never).verifier

        def gone(reference):
            raise RayError("The actor died unexpectedly\nbefore finishing this task.")

        monkeypatch.setattr(ray, "get", gone)
        with pytest.raises(SlotLost, match="The actor died unexpectedly before"):
            remote.check(problem)
