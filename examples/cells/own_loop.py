# %% [markdown]
# # Any weighting in a loop of your own
#
# You have a PyTorch loop over several tasks, and add up their losses. One line changes, and every weighting there is
# can be tried. Weightings need torch alone.

# %%
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import crosstask as ct

torch.set_num_threads(1)  # small layers are quickest on one
torch.manual_seed(0)
truth = torch.randn(20, 3)
sizes = {"ours": 40, "alike": 400, "reversed": 400}
data = {task: torch.randn(size, 20) for task, size in sizes.items()}
labels = {task: (inputs @ truth).argmax(-1) for task, inputs in data.items()}
labels["reversed"] = 2 - labels["reversed"]  # this source would mislead
new = torch.randn(2000, 20)

# %% [markdown]
# ## The loop
#
# `weighting.backward(losses, shared=...)` takes the place of `sum(losses.values()).backward()`. Methods that judge
# their weights by examples that do not train ask for losses on such examples when `wants_held_out` says so; others
# never do.


# %%
def train(weighting, updates=200):
    """Train one model of all tasks, and return our accuracy on new examples."""
    torch.manual_seed(1)
    encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
    biases = nn.ParameterDict({task: nn.Parameter(torch.zeros(3)) for task in data})
    optimizer = torch.optim.Adam([*encoder.parameters(), *biases.parameters()], lr=1e-2)
    weighting.expect(updates)

    def loss_of(task):
        rows = torch.randint(sizes[task], (16,))
        return cross_entropy(encoder(data[task][rows]) + biases[task], labels[task][rows])

    for _ in range(updates):
        losses = {task: loss_of(task) for task in data}  # scalars, each with a graph of its own
        weighting.backward(losses, shared=encoder.parameters())  # <- the line that changes
        optimizer.step()
        optimizer.zero_grad()
        if weighting.wants_held_out:
            weighting.after_step({task: loss_of(task) for task in data}, shared=encoder.parameters())
    right = (encoder(new) + biases["ours"]).argmax(-1) == (new @ truth).argmax(-1)
    return right.float().mean().item()


# %% [markdown]
# ## One after the other
#
# First the bounds: our few examples alone, and the weights that somebody would choose who knows the truth. Some methods
# know which task is the target; others treat all alike, and cannot know that one source misleads.

# %%
tasks = list(data)
weightings = [
    ct.Fixed(tasks=tasks, weights={"ours": 1.0, "alike": 0.0, "reversed": 0.0}),
    ct.Fixed(tasks=tasks, weights={"ours": 1.0, "alike": 1.0, "reversed": 0.0}),
    ct.Uniform(tasks=tasks),
    ct.TAWT(tasks=tasks, target="ours", fresh=16),
    ct.MetaWeighting(tasks=tasks, target="ours", step_size=1.0),
    ct.Uncertainty(tasks=tasks),
    ct.GradNorm(tasks=tasks),
    ct.MGDA(tasks=tasks),
    ct.DWA(tasks=tasks),
]
for weighting in weightings:
    accuracy = train(weighting)
    counts = ", ".join(f"{task} {weight:.2f}" for task, weight in weighting.weights.items())
    print(f"{weighting.name:15} accuracy {accuracy:.3f}   {counts}")

# %% [markdown]
# Mind what weights do not say: a method may take weight from a source that helps, and one run is one sample.
#
# ## Why does a task count what it counts?

# %%
tawt = ct.TAWT(tasks=tasks, target="ours", fresh=16)
train(tawt)
tawt.facts()

# %% [markdown]
# `weighting.state_dict()` belongs into your checkpoint. On several cards call
# `crosstask.gradients.distributed.share_ranks(weighting)`. To write a weighting of your own:
# `docs/tutorials/own_loop.md`.
