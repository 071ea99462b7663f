"""Several runs in one process: threads of which one at a time, the one that holds the baton, does anything.

A small model keeps a GPU busy for a fraction of each update; the rest of the time the host prepares the next kernels or
waits for results. So each run has a stream of its own on the card, and hands the baton on once its kernels are launched
and before it reads what they compute (`hand_on`): meanwhile the others launch theirs.

- The baton goes round in a fixed order, and nothing else runs: code between two calls of `hand_on` needs no lock.
- torch's random number generators belong to the whole process. They go with the baton: each run finds them as it left
  them, and has, bit for bit, the numbers that it has alone.
- Other switches of the whole process (`torch.backends`, filters of warnings, the working folder) do not: a run must not
  hand the baton on inside a context that changes one. Grad mode, autocast, inference mode and the current stream are
  those of a thread, and may be what they like.
"""

import copy
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_thread = threading.local()
"""`turn`: that of the run in this thread, where there is one."""


class StoppedError(BaseException):
    """Raised in a run that has to end, where it takes the baton again."""


def hand_on() -> None:
    """Let the other runs of this process go on until it is this one's turn again; a run alone goes on at once."""
    turn: Turn | None = getattr(_thread, "turn", None)
    if turn is not None:
        turn.baton.hand_on()


def clock() -> float:
    """Seconds of this run: of a clock that stands still while other runs of the process hold the baton."""
    turn: Turn | None = getattr(_thread, "turn", None)
    if turn is None:
        return time.perf_counter()
    return time.perf_counter() - turn.seconds_of_others


class RandomState:
    """The state of torch's random number generators, on the CPU and on the card of this process, if it has one."""

    def __init__(self, device: "torch.device | None" = None) -> None:
        import torch

        self.cpu_generator = torch.default_generator
        self.cuda_generator: torch.Generator | None = None
        if device is not None and device.type == "cuda":
            torch.cuda.init()
            index = torch.cuda.current_device() if device.index is None else device.index
            self.cuda_generator = torch.cuda.default_generators[index]
        self.save()

    def save(self) -> None:
        """Note the state as it is now."""
        self.cpu_state = self.cpu_generator.get_state()
        if self.cuda_generator is not None:
            # The state itself, not its numbers: a CUDA graph draws from the state that it was captured with.
            self.cuda_state = self.cuda_generator.graphsafe_get_state()

    def restore(self) -> None:
        """Put the noted state back."""
        self.cpu_generator.set_state(self.cpu_state)
        if self.cuda_generator is not None:
            self.cuda_generator.graphsafe_set_state(self.cuda_state)

    def clone(self) -> "RandomState":
        """The noted state, for another run."""
        clone = copy.copy(self)
        if self.cuda_generator is not None:
            clone.cuda_state = self.cuda_state.clone_state()
        return clone


class Turn:
    """The place of a run in the round.

    - `random`: the generators' state, while others hold the baton;
    - `seconds_of_others`: how long they have held it so far.
    """

    def __init__(self, baton: "Baton") -> None:
        self.baton = baton
        self.random = baton.random_outside.clone()
        self.seconds_of_others = 0.0
        self.signal = threading.Lock()  # released by the one that hands the baton to this turn
        self.signal.acquire()

    def wait(self) -> None:
        """Until it is this one's turn."""
        started = time.perf_counter()
        self.signal.acquire()
        self.seconds_of_others += time.perf_counter() - started
        self.random.restore()


class Baton:
    """Goes round among the runs that take part, in the order of their turns.

    Outside of all runs the generators are as they were when the baton was made; every run begins with that state.

    Args:
        device: the card of this process, if it has one.
        before_handing_on: called by the run that holds the baton; it may let another run join.
    """

    def __init__(
        self, device: "torch.device | None" = None, before_handing_on: Callable[[], None] = lambda: None
    ) -> None:
        self.before_handing_on = before_handing_on
        self.is_stopped = False
        self.turns: deque[Turn] = deque()  # the first one holds the baton
        self.random_outside = RandomState(device)

    def join(self) -> Turn:
        """A turn for a new run: the next one, or at once where nobody holds the baton. Called by whoever holds it."""
        turn = Turn(self)
        if self.turns:
            self.turns.insert(1, turn)
        else:
            self.turns.append(turn)
            turn.signal.release()
        return turn

    def take(self, turn: Turn) -> None:
        """In the thread of the new run: wait for its first turn."""
        _thread.turn = turn
        turn.wait()

    def hand_on(self) -> None:
        """Let the next run go on, and wait for the next turn."""
        self.before_handing_on()
        if len(self.turns) > 1:
            turn = self.turns[0]
            turn.random.save()
            self.turns.rotate(-1)
            self.turns[0].signal.release()
            turn.wait()
        if self.is_stopped:
            raise StoppedError

    def leave(self) -> None:
        """At the end of a run."""
        _thread.turn = None
        self.turns.popleft()
        if self.turns:
            self.turns[0].signal.release()
        else:
            self.random_outside.restore()

    def stop(self) -> None:
        """Make every run end where it next hands the baton on."""
        self.is_stopped = True
