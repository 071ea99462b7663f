"""Work on a Ray cluster: results as they come, and a machine that is lost takes no result with it."""

import logging
import os
import pickle
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeVar

from crosstask.errors import CrossTaskError, import_extra
from crosstask.studies.executors import MOST_DEATHS, death_error, use_one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")


def import_ray() -> ModuleType:
    """The package, or the line that installs it."""
    return import_extra("ray", extra="ray", purpose="Running on Ray")


def finished_on_ray(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int | None, stop: float
) -> Iterator[tuple[Item, Result]]:
    """Items with their results, in the order in which they are done.

    Each item is a task of Ray's that takes one CPU, and one GPU where the cluster has any. The cluster is the one that
    Ray is connected to already, or that of `RAY_ADDRESS`, or a new one on this machine that ends with the work.

    Args:
        work: what to do with each item; is sent to the cluster once.
        items: different ones, hashable.
        jobs: most tasks at a time; as many as the cluster has room for when None.
        stop: the time of `time.monotonic` after which nothing further is begun.
    """
    ray = import_ray()
    with _cluster(ray, jobs):
        resources = ray.cluster_resources()
        num_gpus = int(resources.get("GPU", 0))
        most = jobs or num_gpus or max(1, int(resources.get("CPU", 1)))
        # Retries are ours, so that the same rule holds as for processes on this machine.
        begin = ray.remote(num_cpus=1, max_retries=0, **({"num_gpus": 1} if num_gpus else {}))(_work_on)
        packed = ray.put(ray.cloudpickle.dumps(work))
        place = os.getcwd(), sys.path
        waiting, deaths = deque(items), Counter[Item]()
        running: dict[Any, Item] = {}
        try:
            while waiting or running:
                while waiting and len(running) < most and time.monotonic() < stop:
                    item = waiting.popleft()
                    running[begin.remote(packed, item, place)] = item
                if not running:
                    return
                for done in ray.wait(list(running))[0]:
                    item = running.pop(done)
                    try:
                        result = ray.get(done)
                    except ray.exceptions.RayTaskError as error:  # the work's own
                        raise error.cause from error
                    except ray.exceptions.RayError as error:  # the worker or its machine is gone
                        deaths[item] += 1
                        if deaths[item] == MOST_DEATHS:
                            raise death_error(MOST_DEATHS) from error
                        waiting.append(item)  # last: what kills its worker each time keeps no other work back
                    else:
                        yield item, result
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


@contextmanager
def _cluster(ray: ModuleType, jobs: int | None) -> Iterator[None]:
    """Connected to Ray; left as it was found."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS")
    own: dict[str, Any] = {} if address else {"num_cpus": jobs, "include_dashboard": False}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"at RAY_ADDRESS={address} could not be reached" if address else "could not be started"
        advice = " See that it runs, and that RAY_AUTH_TOKEN is set if it asks for a token." if address else ""
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise CrossTaskError(f"A Ray cluster {where}: {reason}.{advice}") from error
    try:
        # A thread of Ray's prints what becomes of its workers to where a table, or JSON, is to come.
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            yield
    finally:
        ray.shutdown()


def _work_on(packed: bytes, item: Any, place: tuple[str, Sequence[str]]) -> Any:
    # Paths and modules mean what they mean where the work is handed out, as for a process on that machine.
    folder, modules = place
    sys.path += [path for path in modules if path not in sys.path]
    try:
        os.chdir(folder)
    except OSError as error:
        raise CrossTaskError(
            f"The folder '{folder}' is not on the machine '{socket.gethostname()}': all machines of a Ray cluster must "
            "see the same files. Use a shared folder."
        ) from error
    work = _unpacked(packed)
    use_one_thread()
    return work(item)


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> Callable[[Any], Any]:
    """Once in each worker: work can hold data, and may keep some for its next item."""
    return pickle.loads(packed)
