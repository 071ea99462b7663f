"""One thread that works, and many that wait: what comes in at the same time is worked on together.

Nothing waits for a batch to fill. While the worker is busy requests add up, so that batches grow with the load.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crosstask.data.examples import Inputs

Work = Callable[[str, list[Any]], Sequence[Any]]
"""From the inputs of a task to a result for each of them."""


class TooBusyError(Exception):
    """More is waiting than may wait."""


class StoppedError(Exception):
    """The worker has been stopped."""


@dataclass(eq=False)
class Job:
    """Inputs of one task that wait together, no more than a batch of them."""

    task: str
    inputs: Inputs
    is_done: threading.Event = field(default_factory=threading.Event)
    results: Sequence[Any] = ()
    error: Exception | None = None
    is_given_up: bool = False


class Batcher:
    """Runs `work` in a thread of its own, on inputs of several jobs at a time.

    Args:
        work: called with one task's inputs, at most `max_batch` of them.
        max_batch: inputs at a time.
        max_waiting: inputs that may wait.
    """

    def __init__(self, work: Work, *, max_batch: int, max_waiting: int) -> None:
        self.work = work
        self.max_batch = max_batch
        self.max_waiting = max_waiting
        self.num_batches = self.num_inputs = 0  # that were worked on
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        """Inputs that wait."""
        with self._changed:
            return sum(len(job.inputs) for job in self._waiting)

    def results(self, task: str, inputs: Inputs, *, seconds: float) -> list[Any]:
        """A result for each input.

        Those beyond a batch are asked for when the first have their results, so that other requests get their turn.

        Args:
            task: the task of all of them.
            inputs: any number.
            seconds: to wait at most; then `TimeoutError`.
        """
        deadline = time.monotonic() + seconds
        results: list[Any] = []
        for start in range(0, len(inputs), self.max_batch):
            job = Job(task, inputs[start : start + self.max_batch])
            self._add(job)
            if not job.is_done.wait(deadline - time.monotonic()):
                job.is_given_up = True
                raise TimeoutError
            if job.error is not None:
                raise job.error
            results += job.results
        return results

    def stop(self) -> None:
        """Finish what is being worked on, and refuse the rest."""
        with self._changed:
            self._is_stopped = True
            for job in self._waiting:
                job.error = StoppedError()
                job.is_done.set()
            self._waiting.clear()
            self._changed.notify()
        self._thread.join(timeout=1.0)

    def _add(self, job: Job) -> None:
        with self._changed:
            if self._is_stopped:
                raise StoppedError
            if sum(len(other.inputs) for other in self._waiting) + len(job.inputs) > self.max_waiting:
                raise TooBusyError
            self._waiting.append(job)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_stopped:
                    self._changed.wait()
                if self._is_stopped:
                    return
                jobs = self._take_batch()
            self._work_on(jobs)

    def _take_batch(self) -> list[Job]:
        """The job that has waited longest, and others of its task, in their order, as far as there is room."""
        jobs: list[Job] = []
        others: deque[Job] = deque()
        room = self.max_batch
        while self._waiting:
            job = self._waiting.popleft()
            if job.is_given_up:
                continue
            if (not jobs or job.task == jobs[0].task) and len(job.inputs) <= room:
                jobs.append(job)
                room -= len(job.inputs)
            else:
                others.append(job)
        self._waiting = others
        return jobs

    def _work_on(self, jobs: Sequence[Job]) -> None:
        """Give each job its results; where something goes wrong, each alone, so that it goes wrong for one only."""
        if not jobs:
            return
        inputs: list[Any] = []
        for job in jobs:
            inputs.extend(job.inputs)
        try:
            results = self.work(jobs[0].task, inputs)
        except Exception as error:  # whatever the model raises: the thread must go on
            if len(jobs) > 1:
                for job in jobs:
                    self._work_on([job])
                return
            jobs[0].error = error
            jobs[0].is_done.set()
            return
        self.num_batches += 1
        self.num_inputs += len(inputs)
        start = 0
        for job in jobs:
            job.results = results[start : start + len(job.inputs)]
            start += len(job.inputs)
            job.is_done.set()
