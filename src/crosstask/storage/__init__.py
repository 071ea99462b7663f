"""Files of crosstask's own: complete or not there when written, and never trusted when read."""

from crosstask.storage.reading import DamagedFileError, read_json, read_lines, read_text
from crosstask.storage.writing import explain_write_errors, new_folder, remove_scratch, write_text

__all__ = [
    "DamagedFileError",
    "explain_write_errors",
    "new_folder",
    "read_json",
    "read_lines",
    "read_text",
    "remove_scratch",
    "write_text",
]
