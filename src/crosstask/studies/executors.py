"""Work for several processes side by side: results as they come, and a process that dies takes no result with it."""

import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, Literal, TypeVar, get_args

from crosstask.errors import CrossTaskError, unknown

Item = TypeVar("Item")
Result = TypeVar("Result")
Place = Literal["local", "ray"]
"""Where work is done: on this machine, or on a Ray cluster."""
MOST_DEATHS = 3
"""Deaths in a row, without a result in between, after which something is wrong with the work itself."""


def finished(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    jobs: int | None,
    *,
    on: Place = "local",
    minutes: float | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Items with their results, in the order in which they are done.

    Args:
        work: what to do with each item; goes to every process once, so it can hold data.
        items: different ones, hashable.
        jobs: processes, on one thread each; with 1 the work is done in this process. As many as this machine, or the
            cluster, has room for when None.
        on: "local", or "ray" for a Ray cluster.
        minutes: after which nothing further is begun; what is under way is waited for. With 0 nothing is done.
    """
    check_place(on)
    if minutes == 0:
        return
    stop = math.inf if minutes is None else time.monotonic() + 60 * minutes
    if on == "ray":
        from crosstask.studies.ray_executor import finished_on_ray

        yield from finished_on_ray(work, items, jobs, stop)
        return
    count = jobs or num_processes()
    if count == 1 or len(items) < 2:
        for item in items:
            if time.monotonic() > stop:
                return
            yield item, work(item)
        return
    left, deaths = dict.fromkeys(items), 0
    while left:
        try:
            for item, result in _by_pool(work, list(left), count, stop):
                del left[item]
                deaths = 0
                yield item, result
            return
        except BrokenProcessPool as error:
            deaths += 1
            if deaths == MOST_DEATHS:
                raise death_error(deaths) from error


def check_place(on: str) -> None:
    """There must be such a place, with what it needs; before anything is begun."""
    if on not in get_args(Place):
        raise unknown("place to run on", on, get_args(Place))
    if on == "ray":
        from crosstask.studies.ray_executor import import_ray

        import_ray()


def use_one_thread() -> None:
    """Of torch in this process, whether it is loaded or not: those side by side would be in each other's way."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    else:
        os.environ["OMP_NUM_THREADS"] = "1"


def death_error(deaths: int) -> CrossTaskError:
    """For work that takes its process with it again and again."""
    return CrossTaskError(
        f"Processes came to an end before they had a result, {deaths} in a row, perhaps for want of memory. What is "
        "done is kept: start again with fewer --jobs."
    )


def num_processes() -> int:
    """How many processes this machine has room for: one for each core that may be used, but one alone on a GPU."""
    import torch

    if torch.cuda.is_available():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _by_pool(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int, stop: float
) -> Iterator[tuple[Item, Result]]:
    # A fresh interpreter each: a copy of this one would inherit locks of threads that it does not have.
    context = multiprocessing.get_context("spawn")
    count = min(jobs, len(items))
    with ProcessPoolExecutor(count, context, initializer=_begin, initargs=(work, os.getpid())) as pool:
        waiting = iter(items)
        # No more than each process can start at once: what has not been handed out can be left undone.
        futures = {pool.submit(_work_on, item): item for item in islice(waiting, count)}
        try:
            while futures:
                done, _ = wait(futures, return_when=FIRST_COMPLETED)
                for future in done:
                    item, result = futures.pop(future), future.result()
                    if time.monotonic() < stop:
                        futures |= {pool.submit(_work_on, following): following for following in islice(waiting, 1)}
                    yield item, result
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_work: Callable[[Any], Any]


def _begin(work: Callable[[Any], Any], parent: int) -> None:
    global _work
    _work = work
    use_one_thread()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A parent that was killed cannot say so; its workers would wait for it forever."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _work_on(item: Any) -> Any:
    return _work(item)
