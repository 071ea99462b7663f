"""One encoder, one head per task: batches, losses, evaluation and export."""
