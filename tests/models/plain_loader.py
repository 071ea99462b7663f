"""Loads exported folders as somebody without crosstask does; `python plain_loader.py CASES.json` writes the logits."""

import importlib.abc
import json
import sys
import warnings
from pathlib import Path


class NoCrossTask(importlib.abc.MetaPathFinder):
    """Every import of crosstask fails."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "crosstask":
            raise ModuleNotFoundError("there is no crosstask here")


def main(cases_path: str) -> None:
    """For each case: is the code of the folder needed, which class it is, its logits, and what a pipeline says."""
    sys.meta_path.insert(0, NoCrossTask())
    warnings.simplefilter("ignore")
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    answers = {}
    for name, case in json.loads(Path(cases_path).read_text()).items():
        auto = transformers.AutoModelForSequenceClassification
        if case["is_tagging"]:
            auto = transformers.AutoModelForTokenClassification
        refusal = None
        trust = (Path(case["folder"]) / "modeling_crosstask.py").is_file()
        if trust:
            try:
                auto.from_pretrained(case["folder"], trust_remote_code=False)
            except ValueError as error:
                refusal = str(error)
        model = auto.from_pretrained(case["folder"], trust_remote_code=trust)
        tokenizer = transformers.AutoTokenizer.from_pretrained(case["folder"])
        inputs = case["inputs"]
        if case["is_pair"]:
            encoded = tokenizer([a for a, _ in inputs], [b for _, b in inputs], padding=True, return_tensors="pt")
        else:
            encoded = tokenizer(inputs, is_split_into_words=case["is_tagging"], padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**encoded).logits
        rows = logits.tolist()
        if case["is_tagging"]:  # of each word's first piece
            rows = []
            for i, words in enumerate(inputs):
                first = [encoded.word_ids(i).index(word) for word in range(len(words))]
                rows.append(logits[i, first].tolist())
        said = None
        if not case["is_tagging"] and not case["is_pair"]:
            said = transformers.pipeline("text-classification", case["folder"], trust_remote_code=trust)(inputs)
        answers[name] = {
            "trust": trust,
            "refusal": refusal,
            "class": type(model).__name__,
            "logits": rows,
            "labels": list(model.config.id2label.values()),
            "said": said,
            "crosstask": "crosstask" in sys.modules,
        }
    Path(cases_path).with_suffix(".out.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
