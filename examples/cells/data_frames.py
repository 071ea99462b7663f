# %% [markdown]
# # Data frames of your own
#
# Tickets of a shop: sixty were sorted into three queues. Hundreds carry another label, whether the customer was angry.
# The notebook makes them up, so that it needs no file; one in ten does not say what it is about.

# %%
import random

import pandas as pd
from sklearn.datasets import load_wine

import crosstask as ct

QUEUES = {
    "billing": ["invoice", "refund", "payment", "price", "card"],
    "delivery": ["parcel", "courier", "address", "tracking", "delay"],
    "returns": ["size", "zip", "exchange", "label", "colour"],
}
CALM = ["could you check the {} and the {}, please", "a question about {} and {}", "where do I find {} or {}"]
ANGRY = ["the {} and the {} are a disgrace", "I am tired of asking about {} and {}", "sort out my {} and {} at once"]


def tickets(count, seed):
    """A frame with a column for each label."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        queue = list(QUEUES)[number % 3]
        angry = rng.random() < 0.4
        sentence = rng.choice(ANGRY if angry else CALM).format(*rng.sample(QUEUES[queue], 2))
        if rng.random() < 0.1:
            sentence = "why does nobody answer"
        rows.append({"body": f"ticket {number}: {sentence}", "queue": queue, "angry": angry})
    return pd.DataFrame(rows)


labeled, more, new = tickets(60, seed=1), tickets(400, seed=2), tickets(100, seed=3)
labeled.head()

# %% [markdown]
# ## Frames become tasks
#
# Which column is the text, which is the label: nothing else has to be said. Labels keep their types, here `bool`.

# %%
queue = ct.Task.from_pandas("queue", labeled, text="body", label="queue", test=new)
angry = ct.Task.from_pandas("angry", more, text="body", label="angry")
queue

# %% [markdown]
# Records (`Task.from_records`), data sets of the package `datasets` (`Task.from_dataset`), arrays and files work alike:
# `ct.Task.read("queue", "tickets/*.csv", text="body", label="queue")` reads several files as one.
#
# ## What is missing is said, with a number

# %%
holes = labeled.assign(queue=labeled["queue"].where(labeled.index % 10 > 0))
try:
    ct.Task.from_pandas("queue", holes, text="body", label="queue")
except ct.CrossTaskError as error:
    print(error)

# %% [markdown]
# ## Training
#
# A small network over words learns from nothing within seconds. `encoder="minilm"`, or any encoder of the hub, knows
# language already and needs fewer labels.

# %%
learner = ct.Learner("textcnn", epochs=15, learning_rate=3e-3, progress=False)
run = learner.fit(queue, angry)
print("always the same answer:", run.majority)
run

# %% [markdown]
# ## Predictions go where the frame is

# %%
probabilities = run.predict_probabilities(new["body"])
new["predicted"] = run.predict(new["body"])
new["probability"] = [max(by_label.values()) for by_label in probabilities]
new.sort_values("probability").head()  # the least sure first

# %%
pd.crosstab(new["queue"], new["predicted"])

# %% [markdown]
# Columns of numbers are inputs too, with `features=["age", "height"]`, or `features="rest"` for all but the label.

# %%
wine = load_wine(as_frame=True).frame
cultivar = ct.Task.from_pandas("cultivar", wine, features="rest", label="target")
ct.Learner("linear", paradigm="probe", progress=False).fit(cultivar)
