"""Values that a JSON schema allows, and now and then one that it does not."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st

from crosstask.recipe import RecipeFile
from fuzz.mutations import Draw, sometimes
from fuzz.odd_values import odd_values

Schema = Mapping[str, Any]

NAMES = ("a", "b", "c", "text", "label", "target", "good", "bad", "x0", "x1", "adapters")
"""What free texts are drawn from: names of the tiny tasks, their columns and labels."""
NUMBERS = (0.0, 1.0, 0.5, 0.1, 2.0, 1e-3, 10.0, -1.0)


@cache
def recipe_schema() -> Schema:
    """The schema of a recipe, with the options of every method that there is."""
    return RecipeFile.json_schema()


def section_schema(name: str) -> Schema:
    """The schema of one section of a recipe."""
    section: Schema = recipe_schema()["properties"][name]
    return section


def draw_from_schema(draw: Draw, schema: Schema, oddness: int = 15) -> Any:
    """A value of a schema; one in `oddness` values in it is odd instead."""
    if sometimes(draw, oddness):
        return draw(odd_values())
    if "$ref" in schema:
        return draw_from_schema(draw, recipe_schema()["$defs"][schema["$ref"].rsplit("/", 1)[1]], oddness)
    if "anyOf" in schema:
        return draw_from_schema(draw, draw(st.sampled_from(schema["anyOf"])), oddness)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    kind = schema.get("type")
    if kind == "object":
        return _draw_object(draw, schema, oddness)
    if kind == "array":
        size = draw(st.integers(0, 3))
        return [draw_from_schema(draw, schema.get("items", {}), oddness) for _ in range(size)]
    if kind == "integer":
        return draw(st.integers(schema.get("minimum", -1), 4))
    if kind == "number":
        return draw(st.sampled_from(NUMBERS))
    if kind == "boolean":
        return draw(st.booleans())
    if kind == "null":
        return None
    return draw(st.sampled_from(NAMES))


def _draw_object(draw: Draw, schema: Schema, oddness: int) -> dict[str, Any]:
    """All required keys, some of the others, and free ones where the schema has them."""
    properties: Schema = schema.get("properties", {})
    names = list(schema.get("required", []))
    optional = [name for name in properties if name not in names]
    if optional:
        names += draw(st.lists(st.sampled_from(optional), max_size=4, unique=True))
    value: dict[str, Any] = {}
    for name in names:
        value[name] = draw_from_schema(draw, properties[name], oddness)
    free = schema.get("additionalProperties")
    if isinstance(free, Mapping) or (free and not properties):
        inner = free if isinstance(free, Mapping) else {}
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True)):
            value[name] = draw_from_schema(draw, inner, oddness)
    return value
