"""Runs work on this machine or on a Ray cluster: results as they come, and a process that dies loses none of them.

On the cores of a machine a process each; on a GPU in turns within one process (`interleaved`), one for each card.

Neither joblib nor Ray's backend for it replaces this (joblib 1.6, Ray 2.60): that backend refuses results as they come
(`return_as="generator_unordered"`), so that a stopped study would lose all that a cluster had finished; and loky's
workers outlived a parent that was killed by more than half a minute, and pickle the work, which can hold data, again
for every item.

Processes and Ray pass objects by pickle, in memory. No file on disk is written or read by pickle.
"""

import logging
import math
import multiprocessing
import os
import pickle
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from types import ModuleType
from typing import Any, Literal, get_args

from crosstask.errors import CrossTaskError, import_extra, unknown
from crosstask.studies.card_processes import CardProcesses, visible_cards
from crosstask.studies.executor_base import Executor, Handle, Item, Result, Work, WorkerDiedError
from crosstask.studies.worker import block_interrupts, start_worker, use_one_thread

ExecutorName = Literal["local", "ray"]
"""Where work runs: on this machine, or on a Ray cluster."""
RUNS_PER_CARD = 8
"""Runs at a time on one card, unless its memory or the user says otherwise."""
MAX_DEATHS = 3
"""Deaths of its process after which an item is given up."""


def finished(
    work: Work[Item, Result],
    items: Sequence[Item],
    jobs: int | None,
    *,
    on: ExecutorName = "local",
    minutes: float | None = None,
    may_begin: Callable[[Item], bool] | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Items with their results, in the order in which they are done.

    Args:
        work: applied to each item; is sent to every process once, so it can hold data.
        items: different ones, hashable.
        jobs: items at a time. With 1 they are done in this process. With more there is a process with one thread for
            each of them; or, where there are GPUs, one process for each card, in which items take turns. None stays in
            this process, where a card, if there is one, gets as many as it has room for; on Ray it is all that the
            cluster has room for.
        on: "local", or "ray" for a Ray cluster.
        minutes: after which no further item is started; running ones are waited for. With 0 nothing is done.
        may_begin: asked in this process right before an item is started; one that may not is left out.
    """
    check_executor(on)
    if minutes == 0:
        return
    deadline = time.monotonic() + 60 * (math.inf if minutes is None else minutes)

    def begins(item: Item) -> bool:
        return time.monotonic() < deadline and (may_begin is None or may_begin(item))

    if on == "ray":
        with _ray_cluster(jobs) as ray:
            yield from _results(RayTasks(ray, work, jobs), items, begins)
        return
    executor = _local_executor(work, jobs, len(items))
    if executor is not None:
        yield from _results(executor, items, begins)
        return
    for item in items:
        if begins(item):
            yield item, work(item)


@contextmanager
def connected(jobs: int | None, on: ExecutorName) -> Iterator[None]:
    """One Ray cluster for all calls of `finished` inside, which else would start or join one each."""
    if on == "ray":
        with _ray_cluster(jobs):
            yield
    else:
        yield


def one_here(jobs: int | None, on: ExecutorName) -> int | None:
    """The jobs, or when left out one on this machine, also on a card, and on Ray all that there is room for."""
    if jobs is None and on == "local":
        return 1
    return jobs


def num_at_a_time(jobs: int | None, on: ExecutorName) -> int:
    """How many items `finished` does at a time, as `one_here` has it."""
    if on == "ray":
        with _ray_cluster(jobs) as ray:
            return _ray_size(ray, jobs)
    return jobs or 1


def _results(
    executor: Executor[Item, Result], items: Sequence[Item], begins: Callable[[Item], bool]
) -> Iterator[tuple[Item, Result]]:
    """The loop around every executor: keep it busy, hand over results, start again what lost its process."""
    waiting = deque(items)
    running: dict[Handle, Item] = {}
    deaths: Counter[Item] = Counter()
    deaths_in_a_row = 0
    try:
        while waiting or running:
            # No more than can run at once: what has not been started can be left undone.
            while waiting and len(running) < executor.size:
                item = waiting.popleft()
                if begins(item):
                    running[executor.submit(item)] = item
            if not running:
                return
            for handle in executor.wait(running):
                item = running.pop(handle)
                try:
                    result = executor.result(handle)
                except WorkerDiedError as error:
                    deaths[item] += 1
                    deaths_in_a_row += 1
                    # Either this item is deadly, or all are: no process came to a result.
                    if deaths[item] == MAX_DEATHS or deaths_in_a_row >= MAX_DEATHS * executor.size:
                        raise _death_error() from error
                    waiting.append(item)  # last: a deadly item holds up no other one
                else:
                    deaths_in_a_row = 0
                    yield item, result
    except (KeyboardInterrupt, SystemExit):  # which the command line makes of signals
        executor.kill(running)
        raise
    finally:
        executor.close(running)


def check_executor(on: str) -> None:
    """The name must be known and its package installed; checked before anything is begun."""
    if not isinstance(on, str) or on not in get_args(ExecutorName):
        raise unknown("place to run on", on, get_args(ExecutorName))
    if on == "ray":
        _import_ray()


def _local_executor(work: Work[Item, Result], jobs: int | None, num_items: int) -> Executor[Item, Result] | None:
    """None where one item after the other is done in this process."""
    if jobs == 1 or num_items <= 1:
        return None
    cards = visible_cards()
    if jobs is None:
        if not cards:
            return None
        from crosstask.studies.interleaved import InterleavedRuns

        return InterleavedRuns(work, min(RUNS_PER_CARD, num_items))
    size = min(jobs, num_items)
    if cards:
        return CardProcesses(work, cards[:size], size)
    return LocalProcesses(work, size)


def num_workers(jobs: int | None) -> int:
    """How many processes share so many jobs on this machine."""
    cards = visible_cards()
    if cards:
        return min(jobs or 1, len(cards))
    return jobs or 1


def num_jobs() -> int:
    """For how many items at a time this machine has room: one for each core that may be used, or several per GPU."""
    cards = visible_cards()
    if cards:
        return RUNS_PER_CARD * len(cards)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _death_error() -> CrossTaskError:
    return CrossTaskError(
        f"Processes came to an end before they had a result, {MAX_DEATHS} in a row, perhaps for want of memory. What "
        "is done is kept: start again with fewer --jobs."
    )


class LocalProcesses(Executor[Item, Result]):
    """A pool of processes. Where one dies, all of the pool's end, and the next item starts another pool."""

    def __init__(self, work: Work[Item, Result], size: int) -> None:
        self.work, self.size = work, size
        # A signal interrupts the main thread alone: a process that is being started elsewhere is started to its end.
        self.starter = ThreadPoolExecutor(1, initializer=block_interrupts)
        self._start_pool()

    def _start_pool(self) -> None:
        # A fresh interpreter each: a copy of this one would inherit locks of threads that it does not have.
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(
            self.size, context, initializer=_start_worker, initargs=(self.work, os.getpid())
        )

    def submit(self, item: Item) -> Handle:
        return self.starter.submit(self._submit, item).result()

    def _submit(self, item: Item) -> Handle:
        try:
            return self.pool.submit(_work_on, item)
        except BrokenProcessPool:
            self.pool.shutdown(wait=False)
            self._start_pool()
            return self.pool.submit(_work_on, item)

    def wait(self, handles: Collection[Handle]) -> Collection[Handle]:
        return wait(handles, return_when=FIRST_COMPLETED).done

    def result(self, handle: Handle) -> Result:
        try:
            return handle.result()
        except BrokenProcessPool as error:
            raise WorkerDiedError from error

    def close(self, handles: Collection[Handle]) -> None:
        self.starter.shutdown()
        self.pool.shutdown(cancel_futures=True)  # waits for what runs

    def kill(self, handles: Collection[Handle]) -> None:
        self.starter.shutdown()
        # From Python 3.14 on this is `kill_workers`. Nothing is lost: every file is whole at every moment.
        for process in list((self.pool._processes or {}).values()):
            process.kill()


_work: Work[Any, Any]
"""Of this process, where it is a worker."""


def _start_worker(work: Work[Any, Any], parent: int) -> None:
    global _work
    _work = work
    start_worker(parent)


def _work_on(item: Item) -> object:
    return _work(item)


class RayTasks(Executor[Item, Result]):
    """Tasks of Ray's, with one CPU each, and a GPU where the cluster has any; with more jobs than GPUs they share."""

    def __init__(self, ray: ModuleType, work: Work[Item, Result], jobs: int | None) -> None:
        self.ray, self.jobs = ray, jobs
        self.size = _ray_size(ray, jobs)
        num_gpus = int(ray.cluster_resources().get("GPU", 0))
        # Retries are ours, so that the same rule holds as for processes on this machine.
        share = share_of_gpu(num_gpus, self.size)
        self.start = ray.remote(num_cpus=1, num_gpus=share, max_retries=0)(_work_on_ray)
        self.packed_work = ray.put(ray.cloudpickle.dumps(work))

    def submit(self, item: Item) -> Handle:
        return self.start.remote(self.packed_work, item, os.getcwd(), sys.path)

    def wait(self, handles: Collection[Handle]) -> Collection[Handle]:
        finished_handles: Collection[Handle] = self.ray.wait(list(handles))[0]
        self.size = _ray_size(self.ray, self.jobs)  # without a node that was lost: what would wait is not begun
        return finished_handles

    def result(self, handle: Handle) -> Result:
        try:
            return self.ray.get(handle)
        except self.ray.exceptions.RayTaskError as error:  # the work's own
            raise error.cause from error
        except self.ray.exceptions.RayError as error:  # the worker or its machine is gone
            raise WorkerDiedError from error

    def close(self, handles: Collection[Handle]) -> None:
        for handle in handles:
            self.ray.cancel(handle, force=True)

    def kill(self, handles: Collection[Handle]) -> None:
        self.close(handles)


def _ray_size(ray: ModuleType, jobs: int | None) -> int:
    """As many items as there are jobs, or else GPUs, or else CPUs in the cluster as it is now."""
    resources = ray.cluster_resources()
    return jobs or int(resources.get("GPU", 0)) or max(1, int(resources.get("CPU", 1)))


def share_of_gpu(num_gpus: int, num_items: int) -> float:
    """What each of so many items at a time gets of a GPU, none where there is none.

    >>> share_of_gpu(4, 2), share_of_gpu(4, 8), share_of_gpu(2, 5), share_of_gpu(0, 3)
    (1.0, 0.5, 0.3333, 0.0)
    """
    if not num_gpus:
        return 0.0
    items_per_gpu = math.ceil(num_items / num_gpus)
    return math.floor(10_000 / max(1, items_per_gpu)) / 10_000  # Ray counts in ten thousandths


def _import_ray() -> ModuleType:
    return import_extra("ray", extra="ray", purpose="Running on Ray")


@contextmanager
def _ray_cluster(jobs: int | None) -> Iterator[ModuleType]:
    """Connected to Ray, as it is already, or to `RAY_ADDRESS`, or to a new cluster here; left as it was before."""
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address:
            ray.init(address, **quiet)
        else:
            ray.init("local", num_cpus=jobs, include_dashboard=False, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        problem, advice = "could not be started", ""
        if address:
            problem = f"at RAY_ADDRESS={address} could not be reached"
            advice = " See that it runs, and that RAY_AUTH_TOKEN is set if it asks for a token."
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise CrossTaskError(f"A Ray cluster {problem}: {reason}.{advice}") from error
    # Until it has ended, a thread of Ray's prints what becomes of its workers to where a table, or JSON, is to come.
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            yield ray
        finally:
            ray.shutdown()


def _work_on_ray(packed_work: bytes, item: Item, folder: str, module_paths: Sequence[str]) -> object:
    # Paths and modules mean what they mean where the work is handed out, as for a process on that machine.
    for path in module_paths:
        if path not in sys.path:
            sys.path.append(path)
    try:
        os.chdir(folder)
    except OSError as error:
        raise CrossTaskError(
            f"The folder '{folder}' is not on the machine '{socket.gethostname()}': all machines of a Ray cluster must "
            "see the same files. Use a shared folder."
        ) from error
    work = _unpacked(packed_work)
    use_one_thread()
    return work(item)


@lru_cache(maxsize=1)
def _unpacked(packed_work: bytes) -> Work[Any, Any]:
    """Once in each worker: work can hold data, and may keep some for its next item."""
    return pickle.loads(packed_work)
