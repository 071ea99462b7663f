"""A process per card, each with several runs that take turns: a run that breaks the card's context breaks no other."""

import contextlib
import multiprocessing
import os
import pickle
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_connections
from typing import Any

from crosstask.studies.executor_base import Executor, Item, Result, Work, WorkerDiedError
from crosstask.studies.worker import block_interrupts, start_worker

VISIBLE_CARDS = "CUDA_VISIBLE_DEVICES"
"""The variable of the environment that CUDA reads."""
CLOSING_SECONDS = 10.0
"""For runs that nobody waits for any more to come to their next turn, and end there."""


class CardProcess:
    """A process, its end of the pipe, and the futures of what it runs by number."""

    def __init__(self, work: Work[Any, Any], card: str | None, size: int) -> None:
        context = multiprocessing.get_context("spawn")  # a copy of this process would have a broken CUDA context
        self.connection, far_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(far_end, work, os.getpid(), size), daemon=True)
        with _visible_card(card):
            self.process.start()
        far_end.close()  # so that the death of the process is the end of what can be read
        self.futures: dict[int, Future[Any]] = {}
        self.num_submitted = 0
        self.is_alive = True

    def submit(self, item: Item) -> "Future[Any]":
        """Send an item."""
        future: Future[Any] = Future()
        self.futures[self.num_submitted] = future
        try:
            self.connection.send((self.num_submitted, item))
        except OSError:  # it has just died
            self._lose("its process was gone")
        self.num_submitted += 1
        return future

    def receive(self) -> None:
        """Read a message; without one the process has died, and so has all that it ran."""
        try:
            number, result, error = self.connection.recv()
        except (EOFError, OSError):
            self._lose("it ended without a word")
            return
        if number is None:
            self._lose(str(error))
        elif error is not None:
            self.futures.pop(number).set_exception(error)
        else:
            self.futures.pop(number).set_result(result)

    def _lose(self, reason: str) -> None:
        self.is_alive = False
        self.process.kill()
        self.connection.close()
        for future in self.futures.values():
            future.set_exception(WorkerDiedError(reason))
        self.futures.clear()

    def close(self) -> None:
        """Let it end; what it still runs ends at its next turn."""
        if self.is_alive:
            self.connection.close()
            self.process.join(CLOSING_SECONDS)
        self.process.kill()


class CardProcesses(Executor[Item, Result]):
    """As many processes as there are cards, with `size` runs in all of them together.

    Args:
        cards: as `CUDA_VISIBLE_DEVICES` names them; None leaves the environment as it is.
    """

    def __init__(self, work: Work[Item, Result], cards: Collection[str | None], size: int) -> None:
        self.work, self.size = work, size
        self.runs_per_card = -(-size // len(cards))
        self.processes: dict[str | None, CardProcess | None] = dict.fromkeys(cards)
        # A signal interrupts the main thread alone: a process that is being started elsewhere is started to its end.
        self.starter = ThreadPoolExecutor(1, initializer=block_interrupts)

    def submit(self, item: Item) -> "Future[Result]":
        return self.starter.submit(self._submit, item).result()

    def _submit(self, item: Item) -> "Future[Result]":
        card = min(self.processes, key=self._num_running)
        process = self.processes[card]
        if process is None or not process.is_alive:
            process = self.processes[card] = CardProcess(self.work, card, self.runs_per_card)
        return process.submit(item)

    def _num_running(self, card: str | None) -> int:
        process = self.processes[card]
        return 0 if process is None else len(process.futures)

    def wait(self, handles: "Collection[Future[Result]]") -> "Collection[Future[Result]]":
        while not any(handle.done() for handle in handles):
            by_connection = {process.connection: process for process in self._alive()}
            for connection in wait_for_connections(list(by_connection)):
                by_connection[connection].receive()  # type: ignore[index]
        return [handle for handle in handles if handle.done()]

    def result(self, handle: "Future[Result]") -> Result:
        return handle.result()

    def close(self, handles: "Collection[Future[Result]]") -> None:
        self.starter.shutdown()
        for process in self._alive():
            process.close()

    def kill(self, handles: "Collection[Future[Result]]") -> None:
        self.starter.shutdown()
        for process in self._alive():
            process.process.kill()  # nothing is lost: every file is whole at every moment

    def _alive(self) -> list[CardProcess]:
        return [process for process in self.processes.values() if process is not None and process.is_alive]


@contextlib.contextmanager
def _visible_card(card: str | None) -> Iterator[None]:
    """Processes that are started inside see this card alone."""
    if card is None:
        yield
        return
    before = os.environ.get(VISIBLE_CARDS)
    os.environ[VISIBLE_CARDS] = card
    try:
        yield
    finally:
        if before is None:
            del os.environ[VISIBLE_CARDS]
        else:
            os.environ[VISIBLE_CARDS] = before


def visible_cards() -> list[str | None]:
    """The cards of this machine that may be used, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch

    num_cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if num_cards <= 1:
        return [None] * num_cards
    names = [str(number) for number in range(num_cards)]
    if os.environ.get(VISIBLE_CARDS):
        names = os.environ[VISIBLE_CARDS].split(",")[:num_cards]
    return [*names]


def _serve(connection: Connection, work: Work[Any, Any], parent: int, size: int) -> None:
    """In the process of a card: run what comes, until nothing can come any more."""
    start_worker(parent)
    from crosstask.studies.interleaved import InterleavedRuns  # with torch, on one thread

    runs: InterleavedRuns[Any, Any] = InterleavedRuns(work, size)
    with contextlib.suppress(EOFError, OSError):  # the study has ended
        while True:
            number, item = connection.recv()
            runs.submit(item).add_done_callback(partial(_send_result, connection, number))
    runs.close(())


def _send_result(connection: Connection, number: int, future: "Future[Any]") -> None:
    """Called by the run that has ended, which holds the baton: messages come one after the other."""
    error = future.exception()
    if error is not None and _is_card_lost():
        connection.send((None, None, repr(error)))
        os._exit(1)
    try:
        if error is None:
            connection.send((number, future.result(), None))
        else:
            connection.send((number, None, error))
    except (pickle.PicklingError, TypeError, AttributeError) as unsendable:
        connection.send((number, None, RuntimeError(f"{error or unsendable!r}")))
    except OSError:  # the study has ended
        return


def _is_card_lost() -> bool:
    """Whether CUDA answers nothing but errors, as after an illegal access to memory; no later run could go on."""
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
