"""What the service answers where it does not answer."""

from collections.abc import Mapping
from http import HTTPStatus

from crosstask.quoting import readable


class Refusal(Exception):  # noqa: N818 - no error of the service
    """A request that is not answered, with its status and a sentence that says why.

    Args:
        status: of HTTP.
        message: what was expected and what was found.
        headers: more of the response.
        closes: whether the connection ends with it, because the rest of the request was not read.
    """

    def __init__(
        self, status: HTTPStatus, message: str, *, headers: Mapping[str, str] | None = None, closes: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = readable(message)
        self.headers = dict(headers or {})
        self.closes = closes

    def to_json(self) -> dict[str, object]:
        """The body of the response."""
        return {"error": {"status": int(self.status), "message": self.message}}
