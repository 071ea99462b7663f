"""scikit-learn's door: estimators with `fit`, `predict` and `score`, whose `fit` takes sources beside X and y."""
