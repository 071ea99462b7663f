"""A service that runs for a test, and how to talk to it: as a client does, or byte by byte."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection

from crosstask.serving.http_server import Server, serve_in_thread
from crosstask.serving.limits import Limits
from crosstask.serving.service import Service


@dataclass
class Answer:
    """A response as a client has it."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    data: dict = field(default_factory=dict)

    @classmethod
    def of(cls, response) -> "Answer":
        body = response.read()
        headers = {name.lower(): value for name, value in response.getheaders()}
        data = json.loads(body) if body and headers["content-type"] == "application/json" else {}
        return cls(response.status, headers, body, data)

    @property
    def message(self) -> str:
        """What an error says."""
        assert list(self.data) == ["error"]
        assert self.data["error"]["status"] == self.status
        return self.data["error"]["message"]


@dataclass
class Running:
    """A service on a port of its own."""

    server: Server

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.server.server_port

    def connect(self) -> HTTPConnection:
        return HTTPConnection(*self.address, timeout=30)

    def ask(self, method: str, path: str, body=None, headers=None) -> Answer:
        """A request on a connection of its own."""
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            return Answer.of(connection.getresponse())
        finally:
            connection.close()

    def post(self, question, **headers) -> Answer:
        """A question, as JSON unless it is bytes."""
        body = question if isinstance(question, bytes) else json.dumps(question).encode()
        return self.ask("POST", "/predict", body, {"Content-Type": "application/json", **headers})

    def send(self, *pieces: bytes, seconds: float = 20.0) -> bytes:
        """Bytes as they are, and all that comes back until the other side closes."""
        with socket.create_connection(self.address, timeout=seconds) as connection:
            for piece in pieces:
                connection.sendall(piece)
            return received(connection)

    def is_well(self) -> bool:
        """Whether it still answers."""
        answer = self.ask("GET", "/health")
        return answer.status == 200 and answer.data["status"] == "ok"


def received(connection: socket.socket) -> bytes:
    """All that comes until the end."""
    pieces = []
    while piece := connection.recv(2**16):
        pieces.append(piece)
    return b"".join(pieces)


def parsed(response: bytes) -> Answer:
    """One response out of bytes."""
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    assert first.startswith("HTTP/1.1 "), first
    assert int(headers["content-length"]) == len(body)
    return Answer(int(first.split()[1]), headers, body, json.loads(body))


@contextmanager
def serving(predictor, name="stars", **limits) -> Iterator[Running]:
    """Serve a model inside."""
    server = Server(Service(predictor, name, Limits(**limits)), "127.0.0.1", 0)
    serve_in_thread(server)
    try:
        yield Running(server)
    finally:
        server.stop()
