"""What the service answers, without HTTP: questions in, answers out."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from crosstask.data.examples import Inputs, TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.runs.predictor import Predictor
from crosstask.serving.answers import Answer, answers_of, without_probabilities
from crosstask.serving.batching import Batcher, StoppedError, TooBusyError
from crosstask.serving.limits import Limits
from crosstask.serving.openapi import openapi
from crosstask.serving.page import page
from crosstask.serving.questions import read_question
from crosstask.serving.refusal import Refusal

LOGGER = logging.getLogger("crosstask.serving")
RETRY_SECONDS = "1"


class Service:
    """A model that answers questions from many threads.

    Args:
        predictor: the model; from now on only this service uses it, and it remembers no texts.
        name: of the model, for people.
        limits: see `Limits`.
    """

    def __init__(self, predictor: Predictor, name: str, limits: Limits | None = None) -> None:
        self.predictor = predictor
        self.name = name
        self.limits = limits or Limits()
        self.predictor.forget_texts()
        self.batcher = Batcher(self._work, max_batch=self.limits.batch, max_waiting=self.limits.waiting)
        self.openapi = json.dumps(openapi(predictor, name, self.limits), ensure_ascii=False).encode()
        self.page = page(predictor, name)

    def predict(self, body: bytes) -> dict[str, Any]:
        """The answer to the question in the body of a request; `Refusal` where there is none."""
        question = read_question(body, self.predictor, self.limits)
        answers = self._answers(question.task, question.inputs)
        if not question.probabilities:
            answers = [without_probabilities(answer) for answer in answers]
        return {"task": question.task, "predictions": answers}

    def health(self) -> dict[str, Any]:
        """What runs here."""
        tasks: dict[str, Mapping[str, Any]] = {}
        for name, spec in self.predictor.tasks.items():
            tasks[name] = describe(spec)
        return {
            "status": "ok",
            "model": self.name,
            "targets": list(self.predictor.targets),
            "tasks": tasks,
            "waiting": self.batcher.num_waiting,
            "answered": self.batcher.num_inputs,
        }

    def warm_up(self) -> None:
        """Answer once, so that whoever asks first does not wait for what is loaded late."""
        for spec in self.predictor.tasks.values():
            if spec.form == "vector":
                continue
            example: Any = {"text": "a", "pair": ("a", "b"), "tokens": ["a"]}[spec.form]
            self._answers(spec.name, [example])

    def stop(self) -> None:
        """Refuse what still waits."""
        self.batcher.stop()

    def _answers(self, task: str, inputs: Inputs) -> list[Answer]:
        try:
            return self.batcher.results(task, inputs, seconds=self.limits.answer_seconds)
        except (TooBusyError, TimeoutError) as error:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "There is more to do than can be done in time. Try again later, or with fewer inputs.",
                headers={"Retry-After": RETRY_SECONDS},
            ) from error
        except StoppedError as error:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "The service is being stopped.", closes=True) from error
        except CrossTaskError as error:
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error

    def _work(self, task: str, inputs: list[Any]) -> list[Answer]:
        return answers_of(self.predictor.predictions(inputs, task, batch_size=self.limits.batch))


def describe(spec: TaskSpec) -> dict[str, Any]:
    """A task for whoever asks the service."""
    return {"kind": spec.kind, "input": spec.form, "labels": list(spec.decisions)}
