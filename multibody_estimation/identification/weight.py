# SPDX-License-Identifier: Apache-2.0
"""The one weight between dynamics and observations, chosen by the data.

`evidence`: Laplace approximation of the probability of the readings, states and parameters integrated out. Right where the model error
is white. `leave_one_out`: each recording in turn is predicted, in short windows, by a fit to the others. Right where the model error is
coloured, as on every real machine; needs at least two recordings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.identify import identify
from multibody_estimation.identification.prediction import predict_windows
from multibody_estimation.identification.problem import Problem, prepare
from multibody_estimation.identification.robot import Robot
from multibody_estimation.least_squares import log_determinant
from multibody_estimation.window import Window

__all__ = ['WeightChoice', 'choose_weight', 'minus_log_evidence']

WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
METHODS = ('evidence', 'leave_one_out')


@dataclass(frozen=True)
class WeightChoice:
    """What was tried and which weight is best."""

    method: str
    weights: tuple[float, ...]
    """Allowed acceleration errors, rad/s^2."""
    scores: tuple[float, ...]
    """Minus twice the log evidence, or mean squared prediction error in units of the encoders' noise; smaller is better."""
    details: tuple[Any, ...]
    """For each weight: None, or the window errors of each left-out recording."""

    @property
    def best(self) -> float:
        """The weight of the smallest score."""
        return self.weights[int(np.nanargmin(self.scores))]

    def __str__(self) -> str:
        lines = [f'  weight {w:>8g} rad/s^2   score {s:.6g}{"   <- best" if w == self.best else ""}' for w, s in zip(self.weights, self.scores)]  # fmt: skip
        note = ''
        if self.best in (self.weights[0], self.weights[-1]):
            note = '\n  The best one is at the end of what was tried: widen the range.'
        return f'Weight by {self.method.replace("_", " ")}:\n' + '\n'.join(lines) + note


def minus_log_evidence(fit: Fit) -> float:
    """-2 log p(readings | weight) up to a constant, by Laplace's approximation about the fit.

    cost + log det T + log det S + 2 m log(weight), m rows of the dynamics: with acceleration errors as rows, the density of the
    motion is that of the errors times a constant, because each row holds the newest position times 1/h^2.
    """
    problem: Problem = fit.problem
    arrow, grid = fit.solution.arrow, problem.grid
    from multibody_estimation._jax import jnp
    from multibody_estimation.least_squares import factorise

    S = np.asarray(factorise(arrow, jnp.float64(1e-13), problem.metric).S)
    free = np.flatnonzero(np.asarray(fit.held) == 0)
    rows = problem.form.nq * float(grid.linked.sum())
    _, reduced = np.linalg.slogdet(S[np.ix_(free, free)])
    return fit.cost + log_determinant(arrow, problem.metric) + float(reduced) + 2 * rows * np.log(fit.settings['weight'])


def choose_weight(
    robot: Robot,
    windows: Sequence[Window],
    *,
    method: str = 'leave_one_out',
    weights: Sequence[float] = WEIGHTS,
    seconds: float = 0.2,
    starts: str = 'causal',
    step: float | None = None,
    fix: Sequence[str] = (),
) -> WeightChoice:
    """Try weights on recordings; ``seconds`` and ``starts`` as in `predict_windows`."""
    windows = (windows,) if isinstance(windows, Window) else tuple(windows)
    if method not in METHODS:
        raise EstimationError(f"method is '{method}'.{did_you_mean(method, METHODS)}")
    if method == 'leave_one_out' and len(windows) < 2:
        raise EstimationError('Leave-one-out needs at least two recordings; record another one, or use method="evidence".')
    options: dict[str, Any] = {'fix': fix, 'step': step}
    if method == 'evidence':
        fits = [identify(robot, windows, weight=w, **options) for w in weights]
        return WeightChoice(method, tuple(weights), tuple(map(minus_log_evidence, fits)), (None,) * len(fits))
    scores, details = [], []
    problem = None
    for w in weights:
        errors = []
        for i in range(len(windows)):
            rest = tuple(x for k, x in enumerate(windows) if k != i)
            if problem is None:
                from multibody_estimation.identification.parameters import select

                problem = prepare(robot, rest, select(robot.parameters, fix=fix), step or robot.settings.get('step'))
            fit = identify(robot, rest, weight=w, problem=problem)
            errors.append(predict_windows(fit, windows[i], seconds=seconds, starts=starts, weight=w))
        assert problem is not None
        scores.append(float(np.mean([_in_noise(problem, e.error) for e in errors])))
        details.append(tuple(errors))
    return WeightChoice(method, tuple(weights), tuple(scores), tuple(details))


def _in_noise(problem: Problem, error: dict) -> float:
    """Mean square over the joints, each in units of its encoder's noise."""
    noise = {}
    for samples in problem.grid.samples:
        for row, _ in enumerate(samples.index):
            noise[samples.sensor.joints[row]] = 1 / samples.weight[row].max()  # type: ignore[attr-defined]
    return float(np.mean([(error[j] / noise[j]) ** 2 for j in error]))
