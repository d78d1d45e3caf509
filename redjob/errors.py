"""The one tree of errors: a class is a situation, `code` is stable, fields carry the facts."""

from __future__ import annotations


class RedjobError(Exception):
    """Raised when redjob cannot do what was asked; every error of redjob is one of these."""

    code = "error"


class InvalidArgument(RedjobError, ValueError):
    """Raised when an argument cannot be accepted; nothing was stored."""

    code = "invalid_argument"

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {problem}; {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy


class NotReady(RedjobError):
    """Raised when no scheduler has opened this namespace (or partition) on this Redis yet."""

    code = "not_ready"

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"namespace {namespace!r} is not open on this Redis: "
            "start `redjob scheduler` (or `redjob dev`) once, it creates what is missing"
        )
        self.namespace = namespace


class Rebuilding(RedjobError):
    """Raised when a partition is being rebuilt and refuses new jobs for a while."""

    code = "rebuilding"

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"the partition is being rebuilt; try again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class StoreUnavailable(RedjobError):
    """Raised when Redis gave no usable answer before the deadline.

    `outcome` is "refused" when no try can have changed anything, else "unknown": the call may
    have been carried out, and repeating it with the same request id (or key) is safe.
    """

    code = "store_unavailable"

    def __init__(self, reason: str, *, outcome: str, job_id: str | None = None) -> None:
        about = f" (job {job_id})" if job_id else ""
        super().__init__(f"Redis gave no usable answer{about}: {reason}; outcome {outcome}")
        self.reason = reason
        self.outcome = outcome
        self.job_id = job_id


class NotReplicated(RedjobError):
    """Raised when what was asked for is done, but too few replicas said in time that they have it.

    `stored` is "memory": the server itself has it. Asking again changes nothing and waits anew.
    """

    code = "not_replicated"
    stored = "memory"

    def __init__(self, replicas: int, wanted: int, job_id: str | None = None) -> None:
        about = f" (job {job_id})" if job_id else ""
        super().__init__(
            f"{replicas} of {wanted} replicas have it{about}: stored in memory only; "
            "wait for the replica to be back, or ask for ack='memory'"
        )
        self.replicas = replicas
        self.wanted = wanted
        self.job_id = job_id

    def of(self, job_id: str) -> NotReplicated:
        """Return the same about one job."""
        return NotReplicated(self.replicas, self.wanted, job_id)


class SlotMoving(StoreUnavailable):
    """Raised when a call's slot was between two servers of a cluster until the deadline."""

    code = "slot_moving"


class StoreFull(RedjobError):
    """Raised when Redis is at maxmemory and refuses new jobs; work already accepted goes on."""

    code = "store_full"

    def __init__(self, retry_after_s: float = 5.0) -> None:
        super().__init__(
            f"Redis is at maxmemory and refuses new jobs; try again in {retry_after_s:g} s, "
            "raise maxmemory or let workers drain the queue"
        )
        self.retry_after_s = retry_after_s


class ServerUnsuitable(RedjobError):
    """Raised when the server cannot carry redjob safely (too old, evicting, another layout)."""

    code = "server_unsuitable"


class PartitionMismatch(RedjobError):
    """Raised when a client was given another number of partitions than the namespace has."""

    code = "partition_mismatch"

    def __init__(self, asked: int, stored: int) -> None:
        super().__init__(
            f"partitions: {asked} was asked for but this namespace has {stored}; "
            f"leave the option out or set it to {stored}"
        )
        self.asked = asked
        self.stored = stored


class IdempotencyConflict(RedjobError):
    """Raised when an idempotency key was used before for another task, queue or payload."""

    code = "idempotency_conflict"

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(
            f"idempotency_key {key!r} already names job {job_id}, "
            "which has another task, queue or payload"
        )
        self.key = key
        self.job_id = job_id


class JobNotFound(RedjobError):
    """Raised when no place holds this job: never accepted, or finished and past its retention."""

    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} is not known (never accepted, or finished long ago)")
        self.job_id = job_id


class WrongState(RedjobError):
    """Raised when an operation does not apply to the state that the job is in."""

    code = "wrong_state"

    def __init__(self, job_id: str, operation: str, state: str) -> None:
        super().__init__(f"job {job_id} is {state}: {operation} does not apply")
        self.job_id = job_id
        self.operation = operation
        self.state = state


class Conflict(RedjobError):
    """Raised when a job changed between reading it and changing it; read it again."""

    code = "conflict"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was changed by somebody else meanwhile; read it again")
        self.job_id = job_id


class UnknownTask(RedjobError):
    """Raised when a job names a task that this process has not registered."""

    code = "unknown_task"

    def __init__(self, task: str) -> None:
        super().__init__(f"task {task!r} is not registered in this worker's app")
        self.task = task


class PayloadMismatch(RedjobError):
    """Raised when a payload does not fit the arguments or type hints of its task."""

    code = "payload_mismatch"


class ResultTimeout(RedjobError, TimeoutError):
    """Raised when a job did not end within the time that `result` was given."""

    code = "result_timeout"

    def __init__(self, job_id: str, timeout_s: float) -> None:
        super().__init__(f"job {job_id} did not end within {timeout_s:g} s")
        self.job_id = job_id
        self.timeout_s = timeout_s


class JobFailed(RedjobError):
    """Raised by `result` when the job ended without one: dead, cancelled or expired."""

    code = "job_failed"

    def __init__(self, job_id: str, state: str, reason: str | None) -> None:
        super().__init__(f"job {job_id} ended {state}" + (f": {reason}" if reason else ""))
        self.job_id = job_id
        self.state = state
        self.reason = reason


class Fenced(RedjobError):
    """Raised when another owner has taken this partition; the caller must stop owning it."""

    code = "fenced"

    def __init__(self, partition: int, epoch: int = 0) -> None:
        super().__init__(f"partition {partition} has another owner now (epoch {epoch})")
        self.partition = partition
        self.epoch = epoch


class Hold(RedjobError):
    """Raised when the server restarted or failed over and no owner has checked it yet; ask again."""

    code = "hold"

    def __init__(self, partition: int) -> None:
        super().__init__(f"partition {partition} waits for its owner to check the restarted server")
        self.partition = partition


class Grace(RedjobError):
    """Raised when a sweep came too early after a silence; live workers are to be heard first."""

    code = "grace"

    def __init__(self, partition: int, until_ms: int) -> None:
        super().__init__(f"partition {partition} gives workers time until {until_ms} (wall ms)")
        self.partition = partition
        self.until_ms = until_ms


class JournalForked(RedjobError):
    """Raised when the journal is not the one that was read: Redis lost its newest part."""

    code = "journal_forked"

    def __init__(self, partition: int) -> None:
        super().__init__(f"the journal of partition {partition} is not the one that was read")
        self.partition = partition


class JobCancelled(RedjobError):
    """Raised inside a task when its job was cancelled while it ran."""

    code = "job_cancelled"


class Snooze(RedjobError):
    """Raised by a task to be run again later without counting a failure."""

    code = "snooze"

    def __init__(self, delay_s: float) -> None:
        super().__init__(f"snooze for {delay_s:g} s")
        self.delay_s = delay_s


class ScriptFailed(RedjobError):
    """Raised when the server refused a script for a reason that repeating it will not mend."""

    code = "script_failed"

    def __init__(self, script: str, reason: str) -> None:
        super().__init__(f"script {script} failed: {reason}")
        self.script = script
        self.reason = reason
