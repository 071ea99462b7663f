"""`crosstask schema`."""

import json

import typer

from crosstask.cli._app import app


@app.command()
def schema() -> None:
    """Print the JSON schema of a recipe, for editors that complete and check YAML.

    It has every key of a recipe and the options of every method. An editor with a YAML language server reads it where
    the first line of a recipe is `# yaml-language-server: $schema=recipe.schema.json`.

    [dim]crosstask schema > recipe.schema.json[/dim]
    """
    from crosstask.recipe import RecipeFile

    typer.echo(json.dumps(RecipeFile.json_schema(), indent=2, ensure_ascii=False))
