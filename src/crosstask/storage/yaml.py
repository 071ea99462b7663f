"""YAML, whoever wrote it: read without code, without end and without surprises, or refused with the line.

PyYAML's safe loader runs no code, but a few lines of aliases can stand for more values than memory holds, a text can be
nested deeper than Python's stack, and a scalar that does not fit its tag ends in any exception. So a document is
counted before anything is made of it.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from crosstask.errors import CrossTaskError
from crosstask.quoting import brief
from crosstask.storage.reading import DamagedFileError, read_text

MAX_BYTES = 4 * 2**20
"""The largest file or text; a recipe of a thousand tasks has a tenth of it."""
MAX_NODES = 250_000
"""The most keys and values of a document, those behind aliases counted as often as they are used."""
MAX_DEPTH = 50
"""The most lists and mappings inside one another."""
MAX_BITS = 1023
"""Of a whole number: larger ones fit into no float."""

_TAG = "tag:yaml.org,2002:"
_NOT_AS_KEYS = tuple(_TAG + kind for kind in ("bool", "float", "null", "timestamp"))


def read_yaml(path: Path) -> Any:
    """The value in a YAML file that crosstask wrote."""
    return parse_yaml(read_text(path, max_bytes=MAX_BYTES), str(path))


def parse_yaml(text: str, where: str) -> Any:
    """The value of a text that crosstask wrote; `where` names it in an error."""
    try:
        return _load(text, _BoundedLoader)
    except yaml.YAMLError as error:
        raise DamagedFileError(f"'{where}' is damaged: {_explain(error)}") from error


def parse_handwritten(text: str, where: str) -> Any:
    """The value of a text that a person wrote, such as a recipe; `where` names it in an error.

    >>> parse_handwritten("{rate: 5e-5, yes: 1}", "the text")
    {'rate': 5e-05, 'yes': 1}
    """
    try:
        return _load(text, _HandwrittenLoader)
    except yaml.YAMLError as error:
        raise CrossTaskError(f"{where} is no valid YAML: {_explain(error)}") from error


class _BoundedLoader(yaml.SafeLoader):
    """The safe loader, for documents of limited size and depth whose values can be made."""

    def __init__(self, text: str) -> None:
        self.depth = 0  # of lists and mappings that are being read
        self.num_nodes = 0
        super().__init__(text)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """A node and what is in it. Called for each in turn, so that a document is refused while it is read."""
        self.num_nodes += 1
        self.depth += 1
        if self.num_nodes > MAX_NODES or self.depth > MAX_DEPTH + 1:
            raise _too_large(self.num_nodes, self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def check_node_graph(self, root: yaml.Node) -> None:
        """Aliases must not make the document larger or deeper than it may be, and every key must be a name.

        An alias stands behind what it repeats, so each node has been counted when it comes again, unless it is inside
        itself.
        """
        sizes: dict[yaml.Node, tuple[int, int] | None] = {}  # nodes and depth; None while they are being counted

        def measured(node: yaml.Node) -> tuple[int, int]:
            if node in sizes:
                size = sizes[node]
                if size is None:
                    raise _problem("an alias stands inside what it repeats", node.start_mark)
                return size
            sizes[node] = None
            num_nodes, depth = 1, 0
            for child in self._children(node):
                child_nodes, child_depth = measured(child)
                num_nodes, depth = num_nodes + child_nodes, max(depth, child_depth + 1)
            if num_nodes > MAX_NODES or depth > MAX_DEPTH:
                raise _too_large(num_nodes, node.start_mark)
            sizes[node] = num_nodes, depth
            return num_nodes, depth

        measured(root)

    def _children(self, node: yaml.Node) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
            for key_node, value_node in node.value:
                children += [key_node, value_node]
        return children

    def _check_keys(self, node: yaml.MappingNode) -> None:
        """Keys are single values, and none stands twice: a task would silently be lost."""
        lines: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _problem("a key must be a text or a number, not a list or mapping", key_node.start_mark)
            if key_node.tag == _TAG + "merge":  # `<<` may bring keys that stand here too
                continue
            key, line = self.construct_key(key_node), key_node.start_mark.line + 1
            if key in lines:
                raise _problem(
                    f"'{brief(key)}' stands twice, in lines {lines[key]} and {line}; every name can be used once",
                    key_node.start_mark,
                )
            lines[key] = line

    def construct_key(self, node: yaml.ScalarNode) -> Hashable:
        """The value of a key."""
        key: Hashable = self.construct_object(node)
        return key

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node. PyYAML's own functions fail in many ways where a text does not fit its tag."""
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
            kind = brief(node.tag.removeprefix(_TAG))
            raise _problem(f"'{brief(node.value)}' is no value of the kind `{kind}`", node.start_mark) from error
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise _problem("a whole number has more than 300 digits", node.start_mark)
        if isinstance(value, str) and not _can_be_written(value):
            raise _problem(f"'{brief(value)}' holds half a character (a surrogate)", node.start_mark)
        return value


class _HandwrittenLoader(_BoundedLoader):
    """YAML as people mean it: keys are names, so `yes` and `1.0` stay what they are, and 5e-5 is a number."""

    def construct_key(self, node: yaml.ScalarNode) -> Hashable:
        """The value of a key, which is no truth value, date or fraction."""
        if node.tag in _NOT_AS_KEYS:
            node.tag = _TAG + "str"
        return super().construct_key(node)


# YAML 1.1 reads 5e-5 as a text; people mean the number.
_HandwrittenLoader.add_implicit_resolver(
    _TAG + "float",
    re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _load(text: str, loader_class: type[_BoundedLoader]) -> Any:
    if len(text) > MAX_BYTES:
        raise yaml.YAMLError(f"it has more than {MAX_BYTES:,} characters")
    loader = loader_class(text)
    try:
        root = loader.get_single_node()
    except (ValueError, OverflowError) as error:  # an escape such as "\UFFFFFFFF", or a version of 5,000 digits
        raise _problem(brief(error), loader.get_mark()) from error
    if root is None:
        return None
    loader.check_node_graph(root)
    return loader.construct_document(root)


def _can_be_written(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_large(num_nodes: int, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    if num_nodes > MAX_NODES:
        return _problem(f"it has more than {MAX_NODES:,} keys and values, aliases written out", mark)
    return _problem(f"lists and mappings are nested more than {MAX_DEPTH} deep", mark)


def _problem(text: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=mark)


def _explain(error: yaml.YAMLError) -> str:
    """The sentence about what PyYAML found, with the line where it knows that."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"the character #x{error.character:04x} at position {error.position} is not allowed in YAML."
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        problem = str(error.problem)
        if problem.startswith("but "):  # the second half of a sentence
            problem = f"{error.context}, {problem}"
        return f"line {error.problem_mark.line + 1}: {problem}."
    return f"{error}."
