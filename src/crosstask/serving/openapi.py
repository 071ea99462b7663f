"""`/openapi.json`: the service as OpenAPI describes it, with the inputs and labels of this model."""

from typing import Any

from crosstask import __version__
from crosstask.data.examples import Form, TaskSpec
from crosstask.runs.predictor import Predictor
from crosstask.serving.limits import Limits
from crosstask.serving.questions import INPUT_KEYS

Schema = dict[str, Any]
MAX_LISTED = 200
"""Labels that are listed one by one."""
ERRORS = {
    "400": "The body is no JSON, or is nested too deeply.",
    "408": "The request did not arrive in time.",
    "411": "The request does not say how long its body is.",
    "413": "The body, the number of inputs or one of them is too large.",
    "415": "The body is not said to be JSON.",
    "422": "The JSON does not say what the model needs.",
    "503": "There is more to do than can be done in time.",
}


def openapi(predictor: Predictor, name: str, limits: Limits) -> Schema:
    """The description.

    Args:
        predictor: the model.
        name: of the model, for people.
        limits: of requests.
    """
    questions: list[Schema] = []
    predictions: list[Schema] = []
    for task, spec in predictor.tasks.items():
        questions.append(_question(task, spec, limits, is_default=predictor.targets == (task,)))
        predictions.append(_prediction(spec))
    answer = _object({"task": {"type": "string"}, "predictions": {"type": "array", "items": _one_of(predictions)}})
    responses = {"200": _json("A prediction per input, in their order.", answer)}
    for status, description in ERRORS.items():
        responses[status] = _json(description, {"$ref": "#/components/schemas/Error"})
    error = _object({"status": {"type": "integer"}, "message": {"type": "string"}})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": name,
            "version": __version__,
            "description": "Predictions of a model trained with crosstask.",
        },
        "paths": {
            "/predict": {
                "post": {
                    "summary": "Predict",
                    "operationId": "predict",
                    "requestBody": {"required": True, **_json("", _one_of(questions))},
                    "responses": responses,
                }
            },
            "/health": {
                "get": {
                    "summary": "What runs here",
                    "operationId": "health",
                    "responses": {"200": _json("The model and its tasks.", {"type": "object"})},
                }
            },
        },
        "components": {"schemas": {"Error": _object({"error": error})}},
    }


def _question(task: str, spec: TaskSpec, limits: Limits, *, is_default: bool) -> Schema:
    key = INPUT_KEYS[spec.form]
    text = {"type": "string", "maxLength": limits.characters}
    items: dict[Form, Schema] = {
        "text": text,
        "pair": {
            "oneOf": [
                _object({"text": text, "pair": text}),
                {"type": "array", "items": text, "minItems": 2, "maxItems": 2},
            ]
        },
        "tokens": {"oneOf": [{"type": "array", "items": {"type": "string"}}, text]},
        "vector": {"type": "array", "items": {"type": "number"}},
    }
    properties: dict[str, Schema] = {
        key: {"type": "array", "items": items[spec.form], "maxItems": limits.inputs},
        "task": {"const": task},
    }
    if spec.kind != "regression":
        properties["probabilities"] = {
            "type": "boolean",
            "default": False,
            "description": "Whether the answer has the probability of each label.",
        }
    required = [key] if is_default else [key, "task"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _prediction(spec: TaskSpec) -> Schema:
    if spec.kind == "regression":
        return _object({"value": {"type": "number"}})
    label: Schema = {}
    if len(spec.labels) <= MAX_LISTED:
        label = {"enum": list(spec.decisions)}
    of_labels: Schema = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1}}
    if spec.kind == "tagging":
        of_labels = {"type": "array", "items": of_labels}
    properties: dict[str, Schema] = {"labels": {"type": "array", "items": label}}
    if spec.kind in ("classification", "pair"):
        properties = {"label": label, "probability": {"type": "number", "minimum": 0, "maximum": 1}}
    required = list(properties)
    return {
        "type": "object",
        "properties": {**properties, "probabilities": of_labels},
        "required": required,
        "additionalProperties": False,
    }


def _one_of(schemas: list[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _json(description: str, schema: Schema) -> Schema:
    content: Schema = {"content": {"application/json": {"schema": schema}}}
    if description:
        content["description"] = description
    return content
