"""Runs work on local processes or on a Ray cluster: results as they come, and a process that dies loses none of them.

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
import signal
import socket
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from types import ModuleType
from typing import Any, Generic, Literal, TypeVar, get_args

from crosstask.errors import CrossTaskError, CrossTaskWarning, import_extra, unknown

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Item], Result]
Handle = Any
"""Of an item that runs: a future, or a reference of Ray's."""
ExecutorName = Literal["local", "ray"]
"""Where work runs: on processes of this machine, or on a Ray cluster."""
MAX_DEATHS = 3
"""Deaths of its process after which an item is given up."""


class WorkerDiedError(Exception):
    """A process ended before it had a result."""


class Executor(ABC, Generic[Item, Result]):
    """Runs `size` items at a time.

    - `submit`: starts an item;
    - `wait`: waits until at least one of the running items has ended; returns those that have;
    - `result`: what the work returned or raised, or `WorkerDiedError`;
    - `close`: ends; nobody waits any more for what still runs;
    - `kill`: the same, when the whole program is to end: what still runs is stopped.
    """

    size: int

    @abstractmethod
    def submit(self, item: Item) -> Handle: ...

    @abstractmethod
    def wait(self, handles: Collection[Handle]) -> Collection[Handle]: ...

    @abstractmethod
    def result(self, handle: Handle) -> Result: ...

    @abstractmethod
    def close(self, handles: Collection[Handle]) -> None: ...

    @abstractmethod
    def kill(self, handles: Collection[Handle]) -> None: ...


def finished(
    work: Work[Item, Result],
    items: Sequence[Item],
    jobs: int | None,
    *,
    on: ExecutorName = "local",
    minutes: float | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Items with their results, in the order in which they are done.

    Args:
        work: applied to each item; is sent to every process once, so it can hold data.
        items: different ones, hashable.
        jobs: processes, with one thread each; with 1 the work is done in this process. As many as this machine, or the
            cluster, has room for when None.
        on: "local", or "ray" for a Ray cluster.
        minutes: after which no further item is started; running ones are waited for. With 0 nothing is done.
    """
    check_executor(on)
    if minutes == 0:
        return
    deadline = time.monotonic() + 60 * (math.inf if minutes is None else minutes)
    if on == "ray":
        with _ray_cluster(jobs) as ray:
            yield from _results(RayTasks(ray, work, jobs), items, deadline)
        return
    num_jobs = min(jobs or num_processes(), len(items))
    if num_jobs > 1:
        yield from _results(LocalProcesses(work, num_jobs), items, deadline)
        return
    for item in items:
        if time.monotonic() > deadline:
            return
        yield item, work(item)


def _results(executor: Executor[Item, Result], items: Sequence[Item], deadline: float) -> Iterator[tuple[Item, Result]]:
    """The loop around every executor: keep it busy, hand over results, start again what lost its process."""
    waiting = deque(items)
    running: dict[Handle, Item] = {}
    deaths: Counter[Item] = Counter()
    deaths_in_a_row = 0
    try:
        while waiting or running:
            # No more than can run at once: what has not been started can be left undone.
            while waiting and len(running) < executor.size and time.monotonic() < deadline:
                item = waiting.popleft()
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
                    if deaths[item] == MAX_DEATHS or deaths_in_a_row == MAX_DEATHS * executor.size:
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


def num_processes() -> int:
    """How many processes this machine has room for: one for each core that may be used, but one alone on a GPU."""
    import torch

    if torch.cuda.is_available():
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _use_one_thread() -> None:
    """For torch in this process, loaded or not: processes side by side would slow each other down."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    else:
        os.environ["OMP_NUM_THREADS"] = "1"


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
        self.starter = ThreadPoolExecutor(1, initializer=_block_interrupts)
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


def _block_interrupts() -> None:
    """In the thread that starts processes, which inherit it: Ctrl-C while they import would end in a traceback each."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


_work: Work[Any, Any]
"""Of this process, where it is a worker."""


def _start_worker(work: Work[Any, Any], parent: int) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent decides
    _use_one_thread()
    warnings.simplefilter("ignore", CrossTaskWarning)  # the study's table and page say it
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A parent that was killed cannot say so; its workers would wait for it forever."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _work_on(item: Item) -> object:
    return _work(item)


class RayTasks(Executor[Item, Result]):
    """Tasks of Ray's, with one CPU each, and one GPU where the cluster has any."""

    def __init__(self, ray: ModuleType, work: Work[Item, Result], jobs: int | None) -> None:
        self.ray = ray
        resources = ray.cluster_resources()
        num_gpus = int(resources.get("GPU", 0))
        self.size = jobs or num_gpus or max(1, int(resources.get("CPU", 1)))
        # Retries are ours, so that the same rule holds as for processes on this machine.
        self.start = ray.remote(num_cpus=1, num_gpus=min(1, num_gpus), max_retries=0)(_work_on_ray)
        self.packed_work = ray.put(ray.cloudpickle.dumps(work))

    def submit(self, item: Item) -> Handle:
        return self.start.remote(self.packed_work, item, os.getcwd(), sys.path)

    def wait(self, handles: Collection[Handle]) -> Collection[Handle]:
        return self.ray.wait(list(handles))[0]

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
    try:
        # A thread of Ray's prints what becomes of its workers to where a table, or JSON, is to come.
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
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
    _use_one_thread()
    return work(item)


@lru_cache(maxsize=1)
def _unpacked(packed_work: bytes) -> Work[Any, Any]:
    """Once in each worker: work can hold data, and may keep some for its next item."""
    return pickle.loads(packed_work)
