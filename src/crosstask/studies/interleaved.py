"""Runs that take turns in this process: one copy of the library, the data and the card's context for all of them."""

import gc
import threading
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic

import torch

from crosstask.baton import Baton, StoppedError, Turn
from crosstask.studies.executor_base import Executor, Item, Result, Work

MEMORY_MARGIN = 1.5
"""So many times the memory of a run must be free on a card for one more."""
OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED")
"""In the words of the libraries that have no exception for it."""


@dataclass
class Job(Generic[Item]):
    """An item, and what becomes of it."""

    item: Item
    future: "Future[Any]" = field(default_factory=Future)


class InterleavedRuns(Executor[Item, Result]):
    """Threads that pass a baton round (`crosstask.baton`), each with a stream of its own where there is a card.

    `size` runs at a time, or fewer: a run is started once all others have made their first update and the card has
    memory for one more like them. A run that is out of memory all the same waits until there are fewer, and starts
    again.
    """

    def __init__(self, work: Work[Item, Result], size: int) -> None:
        self.work, self.size = work, size
        self.card: torch.device | None = None
        if torch.cuda.is_available():
            self.card = torch.device("cuda", torch.cuda.current_device())
        self.baton = Baton(self.card, before_handing_on=self._start_next)
        self._waiting: deque[Job[Item]] = deque()
        self._streams: list[torch.cuda.Stream] = []  # of runs that have ended: their memory is that of their stream
        self._threads: set[threading.Thread] = set()
        self._bytes_per_run = 0.0
        self._has_ended_runs = False
        self._mutex = threading.RLock()  # whoever submits holds no baton

    def submit(self, item: Item) -> "Future[Result]":
        job = Job(item)
        with self._mutex:
            self._waiting.append(job)
            if not self.baton.turns:
                self._start_next()
        return job.future

    def wait(self, handles: "Collection[Future[Result]]") -> "Collection[Future[Result]]":
        return wait(handles, return_when=FIRST_COMPLETED).done

    def result(self, handle: "Future[Result]") -> Result:
        return handle.result()

    def close(self, handles: "Collection[Future[Result]]") -> None:
        with self._mutex:
            self._waiting.clear()
            self.baton.stop()
        for thread in list(self._threads):
            thread.join()

    def kill(self, handles: "Collection[Future[Result]]") -> None:
        self.close(handles)

    def _start_next(self) -> None:
        """Start a waiting run if there is room for it."""
        if not self._waiting:
            return
        with self._mutex:
            if self._waiting and self._has_room():
                job, turn = self._waiting.popleft(), self.baton.join()
                thread = threading.Thread(target=self._run, args=(job, turn), daemon=True)
                self._threads.add(thread)
                thread.start()

    def _has_room(self) -> bool:
        num_running = len(self.baton.turns)
        if num_running == 0:
            return True
        if num_running >= self.size:
            return False
        if self.card is None:
            return True
        num_reserved = torch.cuda.memory_reserved(self.card)
        if not self._has_ended_runs:  # some of it is theirs later on
            self._bytes_per_run = num_reserved / num_running
        num_free, _ = torch.cuda.mem_get_info(self.card)
        num_cached = num_reserved - torch.cuda.memory_allocated(self.card)  # which torch gives back where it is needed
        return num_free + num_cached > MEMORY_MARGIN * self._bytes_per_run

    def _run(self, job: Job[Item], turn: Turn) -> None:
        """In a thread of its own: one run from its first turn to its last."""
        self.baton.take(turn)
        try:
            with self._stream():
                is_done = self._do(job)
            if not is_done:
                self._do_later(job)
        finally:
            with self._mutex:
                self._has_ended_runs = True
                self._threads.discard(threading.current_thread())
                self.baton.leave()
                if not self.baton.turns:
                    self._start_next()

    @contextmanager
    def _stream(self) -> Iterator[None]:
        if self.card is None:
            yield
            return
        stream = self._streams.pop() if self._streams else torch.cuda.Stream(self.card)
        try:
            with torch.cuda.stream(stream):
                yield
        finally:
            self._streams.append(stream)

    def _do(self, job: Job[Item]) -> bool:
        """Whether the job came to an end: with a result, or with an error that it has alone as well."""
        try:
            if self.baton.is_stopped:
                raise StoppedError
            job.future.set_result(self.work(job.item))
        except BaseException as error:
            if is_out_of_memory(error) and len(self.baton.turns) > 1:
                return False
            job.future.set_exception(error)
        return True

    def _do_later(self, job: Job[Item]) -> None:
        """With one run less at a time, once what this one had is free."""
        self.size = max(1, len(self.baton.turns) - 1)
        gc.collect()
        torch.cuda.empty_cache()
        self._waiting.appendleft(job)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a card had no memory left for what was asked for."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)
