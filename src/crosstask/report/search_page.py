"""The page of a search: the model first, then all candidates, the sources, what more labels would bring, the time."""

import os
from pathlib import Path
from urllib.parse import quote

from crosstask.report.html import render
from crosstask.report.search_charts import search_charts
from crosstask.report.search_view import SearchView
from crosstask.runs.remarks import Remark


def search_page(view: SearchView, folder: Path = Path()) -> str:
    """The HTML file; the link to the model's own page is relative to `folder`, in which it will stand."""
    link = None
    if view.run_page is not None:
        link = quote(Path(os.path.relpath(view.run_page, folder)).as_posix())
    return render(
        "search.html.j2",
        title=f"{view.file.target}: {view.name}",
        search=view,
        file=view.file,
        charts=search_charts(view),
        link=link,
        remarks=[Remark("note", None, note) for note in view.file.notes],
    )
