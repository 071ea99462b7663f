"""scikit-learn's own checks of an estimator, all of them."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import crosstask as ct


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([ct.CrossTaskClassifier(), ct.CrossTaskRegressor()])
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)
