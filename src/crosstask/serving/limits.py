"""What the service takes, so that no request can stop it."""

from dataclasses import dataclass

MAX_DEPTH = 16
"""Lists and objects of a question inside one another; its own have four at most."""


@dataclass(frozen=True)
class Limits:
    """Sizes and times.

    - `body_bytes`: of the body of a request;
    - `inputs`, `characters`: inputs of a request, and characters of one of them;
    - `batch`: inputs that the model takes at a time;
    - `waiting`: inputs that wait for the model, of all requests together;
    - `connections`: that are open at the same time;
    - `idle_seconds`: between two requests of a connection;
    - `reading_seconds`: for a request to arrive, however slowly it is sent, and for its answer to be taken;
    - `answer_seconds`: for the model to answer;
    - `stopping_seconds`: for requests under way when the service is stopped.
    """

    body_bytes: int = 2**20
    inputs: int = 256
    characters: int = 20_000
    batch: int = 32
    waiting: int = 4_096
    connections: int = 128
    idle_seconds: float = 30.0
    reading_seconds: float = 10.0
    answer_seconds: float = 30.0
    stopping_seconds: float = 8.0
