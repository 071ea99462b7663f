"""Trained models from folders: a run's, the model in one, or an exported one. The folder may be anybody's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from crosstask.errors import CrossTaskError
from crosstask.hub import fetch_model, is_repo_id
from crosstask.models.encoders.transformer_files import warn_of_remote_code
from crosstask.models.export import load_exported
from crosstask.models.multitask import MODEL_FILE, Model, read_description
from crosstask.runs.ensemble import ENSEMBLE_FILE, Ensemble, Member, member_folder, read_ensemble
from crosstask.runs.predictor import Predictor
from crosstask.runs.record import ENVIRONMENT_FILE, METRICS_FILE, MODEL_FOLDER, RECIPE_FILE
from crosstask.runs.run import Run, RunFolder, read_recipe
from crosstask.runs.run_metrics import Metrics, SavedMetrics
from crosstask.storage import DamagedFileError, check_path, explain_damage, read_json
from crosstask.validation import shown


def load(folder: str | Path, *, trust_remote_code: bool = False) -> Predictor:
    """A trained model from a run folder, from the `model` folder inside one, an exported folder, or an ensemble's.

    Loading runs no code of the folder and downloads nothing.

    Args:
        folder: the folder, which may come from somebody else.
        trust_remote_code: run Python code that comes with the model, with all your rights. Few models need that; read
            the code first. A warning says that it runs.
    """
    path = check_path(folder, "load")
    if not path.is_dir():
        hint = f" A model of the hub is loaded with `from_pretrained('{folder}')`." if is_repo_id(str(folder)) else ""
        raise CrossTaskError(f"There is no folder '{folder}'.{hint}")
    for ensemble_path in (path, path / MODEL_FOLDER):
        if (ensemble_path / ENSEMBLE_FILE).is_file():
            return load_ensemble(ensemble_path, trust_remote_code=trust_remote_code)
    if (path / RECIPE_FILE).is_file() and (path / ENVIRONMENT_FILE).is_file():
        return load_run(path, trust_remote_code=trust_remote_code)
    return Predictor(_load_model(path, trust_remote_code))


def from_pretrained(
    name_or_folder: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    trust_remote_code: bool = False,
) -> Predictor:
    """A trained model from the Hugging Face hub, as `push_to_hub` has put it there, or from a folder, as `load` does.

    A folder of this name comes first. From the hub only weights in safetensors, and files of text and JSON are fetched;
    loading runs none of the repository's code, and fetches nothing that its files name.

    Args:
        name_or_folder: owner and name of a repository, or a folder.
        revision: branch, tag or commit of the repository; the newest when left out. A commit cannot change under you.
        token: of an account that may read it; that of `hf auth login` when left out.
        trust_remote_code: as for `load`; Python files are fetched too.
    """
    path = check_path(name_or_folder, "from_pretrained")
    if path.is_dir():
        return load(path, trust_remote_code=trust_remote_code)
    if not is_repo_id(str(name_or_folder)):
        raise CrossTaskError(
            f"There is no folder '{name_or_folder}', and a repository of the hub is named owner/name, as in user/stars."
        )
    folder = fetch_model(str(name_or_folder), revision=revision, token=token, with_code=trust_remote_code)
    if not (folder / MODEL_FILE).is_file():
        raise CrossTaskError(
            f"'{name_or_folder}' on the hub holds no crosstask model: there is no {MODEL_FILE} in it. A model of "
            f"transformers can be an encoder: `encoder: {name_or_folder}`."
        )
    return load(folder, trust_remote_code=trust_remote_code)


def load_run(folder: str | Path, *, trust_remote_code: bool = False) -> Run:
    """A finished run from its folder; what training wrote down is read when it is asked for.

    Args:
        folder: the folder, which may come from somebody else.
        trust_remote_code: as for `load`.
    """
    path = check_path(folder, "load")
    # Finished without a model and not finished yet need different advice.
    if RunFolder(path).is_finished and not (path / MODEL_FOLDER).exists():
        raise CrossTaskError(f"The run in '{folder}' was kept without its model: `compare --keep-runs` keeps it too.")
    if not ((path / MODEL_FOLDER / MODEL_FILE).is_file() and (path / METRICS_FILE).is_file()):
        raise CrossTaskError(f"The run in '{folder}' has not finished: continue it with `crosstask train --resume`.")
    metrics = cast(Metrics, read_json(path / METRICS_FILE, SavedMetrics))
    model = _load_model(path / MODEL_FOLDER, trust_remote_code)
    _check_targets(path / METRICS_FILE, metrics["targets"], model)
    return Run(model, metrics=metrics, folder=RunFolder(path))


def load_ensemble(folder: Path, *, trust_remote_code: bool = False) -> Ensemble:
    """Several models that are used as one, as `Ensemble.save` wrote them.

    Args:
        folder: the folder, which may come from somebody else.
        trust_remote_code: as for `load`.
    """
    description = read_ensemble(folder)
    members: list[Member] = []
    for number, saved in enumerate(description["members"], start=1):
        model = _load_model(member_folder(folder, number), trust_remote_code)
        members.append(Member(saved["name"], saved["weight"], Predictor(model)))
    with explain_damage(f"The ensemble in '{folder}'"):
        return Ensemble(members, description["task"])


def _load_model(folder: Path, trust_remote_code: bool) -> Model:
    if trust_remote_code:
        warn_of_remote_code(str(folder))
    # An export is a folder of Hugging Face with a head, or an ONNX graph; any other is a model as saved.
    description = read_description(folder)
    if any(key in description for key in ("hugging_face", "plain", "onnx")):
        with explain_damage(f"The model in '{folder}'"):
            return load_exported(folder, description, trust_remote_code=trust_remote_code)
    return Model.load(folder, trust_remote_code=trust_remote_code)


def _check_targets(path: Path, targets: Sequence[str], model: Model) -> None:
    if not targets:
        raise DamagedFileError(f"'{path}' is damaged: it names no target.")
    for target in targets:
        if target not in model.specs:
            raise DamagedFileError(f"'{path}' is damaged: the model has no task {shown(target)}.")


def task_options(folder: str | Path, task: str) -> dict[str, Any]:
    """How the run's recipe reads a task; nothing for a model that was exported or made in Python."""
    path = Path(folder) / RECIPE_FILE
    if not path.is_file():
        return {}
    recipe = read_recipe(path)
    tasks = recipe.get("tasks", {})
    if not isinstance(tasks, dict) or not isinstance(tasks.get(task, {}), dict):
        raise DamagedFileError(f"'{path}' is damaged: `tasks` holds no section '{task}' with options.")
    options = dict(tasks.get(task, {}))
    if not isinstance(options.get("train", ""), str | list):  # a run of Python: `train` is a size, not a file
        return {}
    for key in ("name", "folder"):  # arguments of the reader that no recipe has
        if key in options:
            raise DamagedFileError(f"'{path}' is damaged: the task '{task}' has the key '{key}'.")
    return {"seed": recipe.get("seed", 0), **options}
