"""A random walk over one partition: each step is a call, of which a model knows what must come."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from redjob.calls.owner import Fence
from tests.support.dump import Journaled
from tests.support.invariants import View, violations
from tests.support.model import LIVING, Known, Line, Model, Queue

if TYPE_CHECKING:
    from random import Random

    from redjob.calls.call import Call
    from tests.support.dump import State
    from tests.support.world import World

QUEUES = ("q", "r")
WORKERS = ("w1", "w2", "w3")
_AGAIN = {  # what a repeat is answered, letter by letter
    "finish": {"M": "=", "V": "=", "K": "="},
    "replay": {"S": "="},
    "reschedule": {"S": "="},
    "purge": {"M": "="},
    "begin": {"T": "="},
    "heartbeat": {"A": "H"},
    "enqueue": {"S": "E", "D": "E", "R": "E"},
}
_JOURNALS_AGAIN = {"enqueue", "heartbeat"}


class Walk:
    """`step` makes one call and asserts its answer and everything that it left.

    The calls are the methods `do_...` of classes below; each asserts the answer that the model gives.
    """

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.model = Model(world.now_ms, queues={name: Queue() for name in QUEUES})
        self.token = Fence(1, "nonce")
        self.gone: deque[Line] = deque(maxlen=20)  # entries that somebody may still speak of
        self.log: deque[str] = deque(maxlen=12)
        self._repeats = 0  # journal entries of a repeat in this step
        self._ops = [getattr(self, name) for name in dir(type(self)) if name.startswith("do_")]

    def step(self) -> None:
        """One random call."""
        self.world.now_ms += self.rng.choice((0, 0, 1, 20, 300, 2000))
        self.model.now_ms = self.world.now_ms
        was = {job_id: known.letter for job_id, known in self.model.jobs.items()}
        seq = self.world.seq
        op = self.rng.choice(self._ops)
        self.log.append(op.__name__)
        self._repeats = 0
        op()
        self._look(was, seq)

    # looking

    def _look(self, was: dict[str, str], seq: int) -> None:
        state = self.world.dump()
        assert not violations(state), self._said("; ".join(violations(state)))
        places = View(state).places()
        for job_id, known in self.model.jobs.items():
            if known.line and not known.line.entry:
                known.line.entry = str(state.get(f"dispatched/{job_id}", ""))
            self._compare(job_id, _expected(known), _found(state, places.get(job_id, []), known))
        for name, queue in self.model.queues.items():
            depth = int(str(state.get(f"flow:{name}/depth", 0)))
            self._compare(f"depth of {name}", len(queue.lines), depth)
        self._read_journal(state, was, seq)

    def _read_journal(self, state: State, was: dict[str, str], seq: int) -> None:
        changed = {
            job_id for job_id, known in self.model.jobs.items()
            if known.letter != was.get(job_id, "") and known.place
        }  # fmt: skip
        now = int(str(state["meta/seq"])) - self._repeats
        entry = state.get(f"journal/{now}")
        if now == seq:
            assert not changed, self._said(f"{sorted(changed)} changed without a journal entry")
            return
        assert now == seq + 1, self._said(f"{now - seq} journal entries by one call")
        assert isinstance(entry, Journaled)
        told = {line.split(" ")[0]: line.split(" ")[2] for line in entry.lines}
        assert changed <= told.keys(), self._said(f"not in the journal: {changed - told.keys()}")
        for job_id, letter in told.items():
            self._compare(f"journal of {job_id}", self.model.jobs[job_id].letter, letter)

    def _compare(self, what: str, expected: object, found: object) -> None:
        assert expected == found, self._said(f"{what}: must be {expected!r}, is {found!r}")

    def _said(self, text: str) -> str:
        return f"{text}\nafter {', '.join(self.log)}"

    def _call(self, call: Call[Any], expected: str) -> None:
        codes = _codes(self.world.run(call))
        self.log[-1] += f" {codes}"
        self._compare(call.script, expected, codes)
        if self.rng.random() < 0.2:
            self._repeat(call, codes)

    def _repeat(self, call: Call[Any], codes: str) -> None:
        """The same request again, as by who lost the reply: it changes nothing."""
        before, seq = _without_journal(self.world.dump()), self.world.seq
        if call.again_at >= 0:
            call.args[call.again_at] = "1"
        again = _codes(self.world.run(call))
        self.log[-1] += f" again {again}"
        self._compare("state after a repeat", before, _without_journal(self.world.dump()))
        told = str.maketrans(_AGAIN.get(call.script, {}))
        if told:
            self._compare(f"{call.script} repeated", codes.translate(told), again)
        self._repeats = self.world.seq - seq
        assert not self._repeats or call.script in _JOURNALS_AGAIN, self._said("journaled twice")

    # choosing

    def _some(self, prefer: str, queue: str | None = None, most: int = 4) -> list[Known]:
        """A few jobs of one queue or of all: mostly in the preferred place, now and then in any state."""
        pool = [
            known for known in self.model.jobs.values()
            if (queue is None or known.job.queue == queue) and known.place != ""
        ]  # fmt: skip
        preferred = [known for known in pool if known.place == prefer]
        if preferred and self.rng.random() < 0.7:
            others = [known for known in pool if known.place != prefer]
            some = self.rng.sample(preferred, min(len(preferred), self.rng.randint(1, most)))
            return [*some, *self.rng.sample(others, min(len(others), most > 1))]
        return self.rng.sample(pool, min(len(pool), self.rng.randint(1, most)))

    def _attempt(self, known: Known) -> int:
        """The attempt that runs or would be next, mostly."""
        right = known.attempt if known.place == "running" else known.begun
        return max(1, right + self.rng.choice((0, 0, 0, 0, 1, -1)))

    def _worker(self, chosen: list[Known]) -> str:
        running = [known.worker for known in chosen if known.place == "running"]
        return self.rng.choice([*running, *running, *running, *WORKERS])

    def _lines(self, queue: str) -> list[Line]:
        """A few entries of different jobs of one queue, also some that are gone."""
        gone = [line for line in self.gone if line.known.job.queue == queue]
        pool = [*self.model.queues[queue].lines, *gone]
        by_job = {line.known: line for line in self.rng.sample(pool, min(len(pool), 3))}
        self.gone.extend(by_job.values())
        return list(by_job.values())

    def _entry(self, line: Line) -> str:
        return self.world.dump.stream_id(line.entry)


def _codes(reply: Any) -> str:
    return str(reply.code if hasattr(reply, "code") else reply.codes)


def _without_journal(state: State) -> State:
    return {
        name: value for name, value in state.items() if not name.startswith(("journal", "meta"))
    }


def _expected(known: Known) -> dict[str, object]:
    """What a dump must show of a job."""
    queue, place = known.job.queue, known.place
    shown: dict[str, object] = {"places": [], "begun": known.begun, "asked": known.asked}
    if place in LIVING:
        shown["places"] = [f"{place}:{queue}" if place in {"due", "ready", "dead"} else place]
    elif place not in {"", "lost"}:
        shown["grave"] = known.letter
    if place == "due":
        shown["due"] = known.due_ms
    if place == "running":
        shown |= {"run": known.run, "lease": known.lease_ms}
    return shown


def _found(state: State, places: list[str], known: Known) -> dict[str, object]:
    """What a dump shows of a job."""
    job_id, queue = known.job.id, known.job.queue
    begun = str(state.get(f"attempts/{job_id}", 0)).split(" ")[0]
    shown: dict[str, object] = {
        "places": places, "begun": int(begun), "asked": f"cancels/{job_id}" in state,
    }  # fmt: skip
    names = {
        "grave": f"finished/{job_id}",
        "due": f"due:{queue}/{job_id}",
        "run": f"runs/{job_id}",
        "lease": f"running/{job_id}",
    }
    found = {word: state[name] for word, name in names.items() if name in state}
    if "grave" in found:
        found["grave"] = str(found["grave"])[0]
    return shown | found
