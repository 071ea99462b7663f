"""Files of crosstask's own: complete or not there when written, one writer at a time, never trusted when read."""

from crosstask.storage.checked import discard, map_checked, read_checked, write_checked
from crosstask.storage.lock import LOCK_FILE, FolderLock, check_not_locked, lock_folder
from crosstask.storage.reading import (
    DamagedFileError,
    check_shape,
    explain_damage,
    read_json,
    read_lines,
    read_text,
)
from crosstask.storage.writing import (
    FolderExistsError,
    append_text,
    check_output_file,
    check_path,
    create_folder,
    encoded,
    explain_write_errors,
    folder_name,
    new_folder,
    remove_all_scratch,
    remove_folder,
    remove_scratch,
    write_new_text,
    write_text,
)
from crosstask.storage.yaml import parse_handwritten, parse_yaml, read_yaml

__all__ = [
    "LOCK_FILE",
    "DamagedFileError",
    "FolderExistsError",
    "FolderLock",
    "append_text",
    "check_not_locked",
    "check_output_file",
    "check_path",
    "check_shape",
    "create_folder",
    "discard",
    "encoded",
    "explain_damage",
    "explain_write_errors",
    "folder_name",
    "lock_folder",
    "map_checked",
    "new_folder",
    "parse_handwritten",
    "parse_yaml",
    "read_checked",
    "read_json",
    "read_lines",
    "read_text",
    "read_yaml",
    "remove_all_scratch",
    "remove_folder",
    "remove_scratch",
    "write_checked",
    "write_new_text",
    "write_text",
]
