"""What a run leaves behind: events, record, run folder, predictor and trackers."""
