"""The linear solver of version 0.3, which `linear_solver.py` measures ours against: one fold and penalty after another.

Newton's method on features along their principal axes, in double precision on the CPU; from small to large C each fit
starts where the one before ended.
"""

from collections.abc import Sequence

import numpy as np

MAX_STEPS = 100


def fit(features: np.ndarray, labels: np.ndarray, inverse_penalties: Sequence[float], tolerance: float) -> np.ndarray:
    """Weights of standardized features and, in the last row, biases, [penalties, width + 1, classes]."""
    if len(features) < features.shape[1]:
        axes = np.linalg.svd(features, full_matrices=False)[2].T
    else:
        axes = np.linalg.eigh(features.T @ features)[1]
    num_classes = int(labels.max()) + 1
    solver = SoftmaxRegression(features @ axes, labels, num_classes)
    solutions = []
    for inverse_penalty in inverse_penalties:
        if num_classes == 2:  # two classes share one vector of weights, half of it each: half of its penalty
            inverse_penalty = inverse_penalty / 2.0
        solver.minimize(inverse_penalty, tolerance)
        solutions.append(np.concatenate([axes @ solver.weights, solver.bias[None]]))
    return np.stack(solutions)


class SoftmaxRegression:
    """Multinomial logistic regression by Newton's method; steps come from conjugate gradients.

    It minimizes `C * sum of cross-entropies + |weights|^2 / 2`; `weights` is [width, classes].
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray, num_classes: int) -> None:
        self.features = features  # [units, width]
        self.variances = (features**2).sum(axis=0)[:, None]  # [width, 1]
        self.targets = np.eye(num_classes)[labels]  # [units, classes]
        self.weights = np.zeros((features.shape[1], num_classes))
        self.bias = np.zeros(num_classes)

    def minimize(self, inverse_penalty: float, tolerance: float) -> None:
        """Start where the last call ended; stop when no entry of the mean loss's gradient is above `tolerance`."""
        value = self._value(self.weights, self.bias, inverse_penalty)
        for _ in range(MAX_STEPS):
            # 1. The gradient, and whether it is small enough.
            probabilities = self._probabilities()
            errors = probabilities - self.targets
            gradient = inverse_penalty * self.features.T @ errors + self.weights, inverse_penalty * errors.sum(axis=0)
            largest = max(np.abs(gradient[0]).max(initial=0.0), np.abs(gradient[1]).max())
            if largest <= tolerance * inverse_penalty * len(errors):
                return
            # 2. The Newton step, halved until the value falls as far as the gradient promises (Armijo).
            step = self._newton_step(gradient, probabilities, inverse_penalty)
            descent = (step[0] * gradient[0]).sum() + (step[1] * gradient[1]).sum()
            length = 1.0
            while length > 1e-6:
                weights, bias = self.weights + length * step[0], self.bias + length * step[1]
                new_value = self._value(weights, bias, inverse_penalty)
                if new_value <= value + 1e-4 * length * descent:
                    break
                length /= 2.0
            else:
                return  # no step that rounding errors leave room for
            self.weights, self.bias, value = weights, bias, new_value

    def _probabilities(self) -> np.ndarray:
        """Of each class, [units, classes]."""
        logits = self.features @ self.weights + self.bias
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        return logits / logits.sum(axis=1, keepdims=True)

    def _value(self, weights: np.ndarray, bias: np.ndarray, inverse_penalty: float) -> float:
        logits = self.features @ weights + bias
        largest = logits.max(axis=1)
        losses = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest - (logits * self.targets).sum(axis=1)
        return float(inverse_penalty * losses.sum() + 0.5 * (weights**2).sum())

    def _newton_step(
        self, gradient: tuple[np.ndarray, np.ndarray], probabilities: np.ndarray, inverse_penalty: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Minus the inverse Hessian times the gradient, to the precision that a Newton step can use.

        Conjugate gradients, preconditioned by an estimate of the Hessian's diagonal. Weights and bias are one array,
        [width + 1, classes], the bias in its last row.
        """
        spread = (probabilities * (1.0 - probabilities)).mean(axis=0)  # [classes]
        diagonal = np.concatenate(
            [
                inverse_penalty * self.variances * spread + 1.0,
                inverse_penalty * len(probabilities) * spread[None] + 1e-12,
            ]
        )
        residual = -np.concatenate([gradient[0], gradient[1][None]])
        step, scaled = np.zeros_like(residual), residual / diagonal
        direction, product = scaled, (residual * scaled).sum()
        enough = 1e-4 * product
        for _ in range(MAX_STEPS):
            # The Hessian times the direction: through the logits, the softmax, and back to the weights.
            change = self.features @ direction[:-1] + direction[-1]  # [units, classes]
            change = probabilities * (change - (probabilities * change).sum(axis=1, keepdims=True))
            hessian_product = inverse_penalty * np.concatenate([self.features.T @ change, change.sum(axis=0)[None]])
            hessian_product[:-1] += direction[:-1]
            curvature = (direction * hessian_product).sum()
            if curvature <= 0.0:
                break
            step += (product / curvature) * direction
            residual -= (product / curvature) * hessian_product
            scaled = residual / diagonal
            previous, product = product, (residual * scaled).sum()
            if product <= enough:
                break
            direction = scaled + (product / previous) * direction
        return step[:-1], step[-1]
