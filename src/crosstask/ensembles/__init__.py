"""Several models of one target: what each counts, all of them as one predictor, and one plain model distilled of them.

`out_of_fold` collects what each model says of labels that it was not trained on, `weights` says what each counts,
`fitting` does both for learners and returns a `runs.ensemble.Ensemble`, and `distillation` trains one model on what
that says of texts.
"""
