"""An HTML file taken apart, for tests of pages."""

import json
from html.parser import HTMLParser


class Page(HTMLParser):
    """What a browser would make of a page: elements, visible text, scripts."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.text, self.open = [], [], "", []
        self.headings = []
        self.feed(html)

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in ("meta", "link", "br", "img"):
            self.open.append(name)
        if name == "script":
            self.scripts.append("")
        elif name == "h2":
            self.headings.append("")

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text += data
            if "h2" in self.open:
                self.headings[-1] += data

    def names(self):
        return [name for name, _ in self.elements]

    def specs(self):
        return [json.loads(text) for text in self.data()]

    def data(self):
        """What charts are drawn from, as it stands in the page."""
        scripts = zip(self.scripts, self._script_attributes(), strict=True)
        return [text for text, attributes in scripts if attributes.get("type") == "application/json"]

    def _script_attributes(self):
        return [attributes for name, attributes in self.elements if name == "script"]
