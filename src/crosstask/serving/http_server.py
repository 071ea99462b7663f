"""The service over HTTP, with Python's own server: a thread per connection, and limits on all that it sends."""

import contextlib
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from crosstask.quoting import brief
from crosstask.serving.page import CONTENT_POLICY
from crosstask.serving.refusal import Refusal
from crosstask.serving.service import LOGGER, Service
from crosstask.serving.timed_reader import HEAD_BYTES, HeadTooLongError, TimedReader

JSON, HTML = "application/json", "text/html; charset=utf-8"
ROUTES = {"/": ("GET", "HEAD"), "/health": ("GET", "HEAD"), "/openapi.json": ("GET", "HEAD"), "/predict": ("POST",)}
"""What there is, and the methods for it."""
LINGER_BYTES, LINGER_SECONDS = 2**20, 0.5
"""What is still read of a request that was refused, so that its sender gets to see why."""
POLL_SECONDS = 0.05
LATE = Refusal(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time.", closes=True)
_LENGTH = re.compile(r"\d{1,15}")


class Server(ThreadingHTTPServer):
    """Answers for a service.

    Args:
        service: what is answered.
        host: address to listen on.
        port: 0 for any that is free.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, service: Service, host: str, port: int) -> None:
        self.service = service
        self.is_stopping = False
        self._connections = threading.BoundedSemaphore(service.limits.connections)
        self._num_answering = 0
        self._changed = threading.Condition()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Handler)

    def server_bind(self) -> None:
        """Without asking who the address belongs to, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, unless there are too many."""
        if not self._connections.acquire(blocking=False):
            refuse_connection(request)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread left
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As its base, and makes room for another connection at the end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What goes wrong in a connection ends that connection alone."""
        LOGGER.debug("connection ended", exc_info=True)

    @contextlib.contextmanager
    def answering(self) -> Any:
        """Count a request as under way."""
        with self._changed:
            self._num_answering += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_answering -= 1
                self._changed.notify_all()

    def stop(self) -> None:
        """Take no more requests, let those under way finish, and end."""
        self.is_stopping = True
        self.shutdown()
        with self._changed:
            self._changed.wait_for(lambda: not self._num_answering, timeout=self.service.limits.stopping_seconds)
        self.service.stop()
        self.server_close()


def refuse_connection(connection: socket.socket) -> None:
    """Say that there is no room, in one packet and without waiting."""
    refusal = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "There are too many connections.")
    body = json.dumps(refusal.to_json()).encode()
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n"
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(f"{head}Retry-After: 1\r\nConnection: close\r\n\r\n".encode() + body)


class Handler(BaseHTTPRequestHandler):
    """The requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    server: Server
    command, path, began = "", "", 0.0  # of a request that ends before it has these

    def setup(self) -> None:
        """Read and write within the times of the limits."""
        super().setup()
        limits = self.server.service.limits
        self.began = time.monotonic()
        self.reader = TimedReader(self.connection, limits.idle_seconds, limits.reading_seconds)
        self.rfile = io.BufferedReader(self.reader)
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_one_request(self) -> None:
        """One request; what its sender does wrong is answered with JSON."""
        self.reader.expect_request()
        self.has_answered = False
        try:
            super().handle_one_request()
            if self.reader.is_late and self.reader.has_begun and not self.has_answered:
                self._refuse(LATE)
        except HeadTooLongError:
            message = f"The headers have more than {HEAD_BYTES:,} bytes."
            self._refuse(Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message, closes=True))
        except OSError:  # whoever asked is gone
            self.close_connection = True

    # Methods

    def do_GET(self) -> None:
        """The page, the description, or how the service is."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """A question."""
        self._answer(self._post)

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Any other method: HEAD is GET without the body, and the path of a request refuses the rest."""
        if name.startswith("do_"):
            return self.do_GET
        raise AttributeError(name)

    def _answer(self, answer: Callable[[str], tuple[str, bytes, Mapping[str, str]]]) -> None:
        """Send what a function returns for the path: content type, body and more headers."""
        self.began = time.monotonic()
        with self.server.answering():
            try:
                content_type, body, headers = answer(self._path())
                self._send(HTTPStatus.OK, content_type, body, headers)
            except Refusal as refusal:
                self._refuse(refusal)
            except TimeoutError:
                self._refuse(LATE)
            except OSError:
                raise
            except Exception:  # a mistake of ours: this request fails, the service goes on
                LOGGER.exception("a request failed")
                message = "The service made a mistake; its log says which."
                self._refuse(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, message, closes=True))

    def _path(self) -> str:
        """The path without a query, if it and the method exist."""
        path = self.path.split("?", 1)[0]
        if path not in ROUTES:
            paths = ", ".join(ROUTES)
            raise Refusal(HTTPStatus.NOT_FOUND, f"There is no '{brief(path)}' here, but {paths}.", closes=True)
        if self.command not in ROUTES[path]:
            allowed = ", ".join(ROUTES[path])
            message = f"'{path}' takes {allowed}; found {brief(self.command)}."
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, message, headers={"Allow": allowed}, closes=True)
        return path

    def _get(self, path: str) -> tuple[str, bytes, Mapping[str, str]]:
        if self._has_body():  # of no use, and not read: what follows would be taken for a request
            self.close_connection = True
        service = self.server.service
        if path == "/":
            return HTML, service.page, {"Content-Security-Policy": CONTENT_POLICY}
        if path == "/openapi.json":
            return JSON, service.openapi, {}
        return JSON, _json(service.health()), {}

    def _post(self, path: str) -> tuple[str, bytes, Mapping[str, str]]:
        return JSON, _json(self.server.service.predict(self._body())), {}

    # The body

    def _has_body(self) -> bool:
        return "Transfer-Encoding" in self.headers or self.headers.get("Content-Length", "0") != "0"

    def _check_body(self) -> int:
        """The length of the body, if it is one that can be read."""
        lengths = set(self.headers.get_all("Content-Length", []))
        if "Transfer-Encoding" in self.headers or not lengths:
            raise Refusal(
                HTTPStatus.LENGTH_REQUIRED,
                "Send the body in one piece, with its length as Content-Length.",
                closes=True,
            )
        if len(lengths) > 1 or not _LENGTH.fullmatch(next(iter(lengths))):
            raise Refusal(HTTPStatus.BAD_REQUEST, "Content-Length must be one whole number.", closes=True)
        length, limit = int(lengths.pop()), self.server.service.limits.body_bytes
        if length > limit:
            message = f"The body has {length:,} bytes; at most {limit:,} are taken."
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, closes=True)
        if self.headers.get_content_type() != JSON:
            message = f"The body must be JSON, and be said to be (Content-Type: {JSON})."
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message, closes=True)
        return length

    def _body(self) -> bytes:
        length = self._check_body()
        self.reader.expect_body(length)
        body = self.rfile.read(length)
        if len(body) < length:
            raise Refusal(HTTPStatus.BAD_REQUEST, "The body ended before its Content-Length.", closes=True)
        return body

    def handle_expect_100(self) -> bool:
        """Ask for the body only if it would be read."""
        try:
            self._path()
            self._check_body()
        except Refusal as refusal:
            self._refuse(refusal)
            return False
        return super().handle_expect_100()

    # Responses

    def _send(self, status: HTTPStatus, content_type: str, body: bytes, headers: Mapping[str, str]) -> None:
        """A whole response at once."""
        if self.server.is_stopping:
            self.close_connection = True
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"Date: {self.date_time_string()}"]
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
        lines += ["Cache-Control: no-store", "X-Content-Type-Options: nosniff"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if self.close_connection:
            lines.append("Connection: close")
        head = "\r\n".join(lines) + "\r\n\r\n"
        if self.command == "HEAD":
            body = b""
        self.has_answered = True
        self.connection.settimeout(self.server.service.limits.reading_seconds)
        self.wfile.write(head.encode("latin-1", "replace") + body)
        milliseconds = 1000 * (time.monotonic() - self.began)
        # Never what was asked, or by whom.
        LOGGER.info("%s %s %d %.1f ms", self.command, brief(self.path), status.value, milliseconds)

    def _refuse(self, refusal: Refusal) -> None:
        if refusal.closes:
            self.close_connection = True
        self._send(refusal.status, JSON, _json(refusal.to_json()), refusal.headers)
        if refusal.closes:
            self._linger()

    def _linger(self) -> None:
        """Read what is still sent for a moment: closing with bytes unread would take the response away again."""
        deadline = time.monotonic() + LINGER_SECONDS
        left = LINGER_BYTES
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and time.monotonic() < deadline:
                self.connection.settimeout(max(deadline - time.monotonic(), POLL_SECONDS))
                piece = self.connection.recv(min(left, 2**16))
                if not piece:
                    return
                left -= len(piece)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What Python's server finds wrong with a request line or headers, as JSON."""
        status = HTTPStatus(code)
        self._refuse(Refusal(status, explain or message or status.phrase, closes=True))

    def log_message(self, format: str, *args: Any) -> None:
        """What Python's server would print."""
        LOGGER.debug("%s", brief(format % args))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def serve_in_thread(server: Server) -> threading.Thread:
    """Answer from now on, in a thread."""
    thread = threading.Thread(
        target=cast(Callable[[], None], server.serve_forever), kwargs={"poll_interval": POLL_SECONDS}, daemon=True
    )
    thread.start()
    return thread
