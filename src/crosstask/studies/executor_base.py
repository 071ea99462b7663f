"""What every executor does: starts items, waits for them, hands over their results."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Item], Result]
Handle = Any
"""Of an item that runs: a future, or a reference of Ray's."""


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
