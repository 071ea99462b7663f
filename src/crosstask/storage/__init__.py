"""Files of crosstask's own: complete or not there when written, and never trusted when read."""

from crosstask.storage.checked import discard, read_checked, write_checked
from crosstask.storage.reading import (
    DamagedFileError,
    check_shape,
    explain_damage,
    read_json,
    read_lines,
    read_text,
)
from crosstask.storage.writing import (
    check_path,
    explain_write_errors,
    new_folder,
    remove_scratch,
    write_new_text,
    write_text,
)
from crosstask.storage.yaml import parse_handwritten, parse_yaml, read_yaml

__all__ = [
    "DamagedFileError",
    "check_path",
    "check_shape",
    "discard",
    "explain_damage",
    "explain_write_errors",
    "new_folder",
    "parse_handwritten",
    "parse_yaml",
    "read_checked",
    "read_json",
    "read_lines",
    "read_text",
    "read_yaml",
    "remove_scratch",
    "write_checked",
    "write_new_text",
    "write_text",
]
