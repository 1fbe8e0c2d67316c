# SPDX-License-Identifier: Apache-2.0
"""Levenberg-Marquardt for a chain of states with shared, bounded parameters; time and memory linear in the length of the chain.

The states are damped in an absolute metric: scaling by diag(H) would freeze the soft directions behind stiff rows. The parameters
are damped on their Schur complement only (Marquardt's scaling), where the bounds are met exactly by a p x p quadratic program:
the states are not bounded, so eliminating them first loses nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels.arrow import Arrow, Factor, back, factor
from multibody_estimation.least_squares.box_qp import box_qp

__all__ = ['Chain', 'Solution', 'Stop', 'solve']


@dataclass(frozen=True)
class Chain:
    """A least-squares problem over a chain; make it once, solve it many times (its functions are compiled once)."""

    linearise: Callable[..., Arrow]
    """``linearise(states, parameters, data) -> Arrow``: normal equations of all rows, the cost in ``P[-1, -1]``."""
    retract: Callable[..., Any]
    """``retract(states, step (N, b), parameters, parameter_step, data) -> states``."""

    @cached_property
    def normal(self) -> Callable[..., Arrow]:
        """`linearise`, compiled."""
        return jax.jit(self.linearise)

    @cached_property
    def move(self) -> Callable[..., Any]:
        """Compiled: states after the step that belongs to a parameter step."""

        def trial(states, parameters, fac: Factor, step, data):
            return self.retract(states, back(fac, step), parameters, step, data)

        return jax.jit(trial)


factorise = jax.jit(factor)


class Stop:
    """Why a solve ended, as sentences."""

    CONVERGED = (
        'Converged: another step would lower the cost by less than {tolerance:g} (about {deviations:.0e} standard deviations).'
    )
    ITERATIONS = 'Stopped after {iterations} iterations without convergence: raise max_iterations, or improve the start.'
    STALLED = 'Stopped: no step lowers the cost any more (damping {damping:.1e}); the result may not be a minimum.'
    NOT_FINITE = 'Stopped: the cost at the start is not a number; check the start values and the bounds.'
    CANCELLED = 'Cancelled by the caller; the result is the best so far.'


@dataclass(frozen=True)
class Solution:
    """Where a solve ended."""

    states: Any
    parameters: np.ndarray
    cost: float
    arrow: Arrow
    converged: bool
    sentence: str
    iterations: int
    rejected: int
    held: np.ndarray
    """-1, 0, 1: parameter at its lower bound, free, at its upper bound; (p,)."""
    history: tuple[float, ...]
    damping: float


def solve(
    chain: Chain,
    states: Any,
    parameters: np.ndarray,
    data: Any,
    *,
    metric: Any,
    lower: np.ndarray,
    upper: np.ndarray,
    damping: float = 1e-6,
    tolerance: float = 1e-4,
    max_iterations: int = 50,
    progress: Callable[[int, float, float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Solution:
    """Minimise the sum of squares.

    ``metric`` (N, b): damping metric of the state steps. ``lower``, ``upper`` (p,): bounds; the length of the border of ``linearise`` may
    be 0 while parameters are given: then they are known.
    ``parameters`` should be scaled so that a unit is a large change. ``tolerance`` is the predicted decrease of the cost at which to
    stop; with whitened residuals a decrease of t is a step of sqrt(t) standard deviations.
    """
    z = np.asarray(parameters, dtype=float)
    mu, nu = damping, 2.0
    arrow = chain.normal(states, z, data)
    p = arrow.P.shape[0] - 1
    cost = float(np.asarray(arrow.P)[-1, -1])
    history = [cost]
    held = np.zeros(p, dtype=int)
    rejected = iteration = 0

    def done(sentence: str, converged: bool = False) -> Solution:
        words = sentence.format(tolerance=tolerance, deviations=tolerance**0.5, iterations=iteration, damping=mu)
        return Solution(states, z, cost, arrow, converged, words, iteration, rejected, held, tuple(history), mu)

    if not np.isfinite(cost):
        return done(Stop.NOT_FINITE)
    for iteration in range(1, max_iterations + 1):
        if cancelled is not None and cancelled():
            return done(Stop.CANCELLED)
        fac = factorise(arrow, jnp.float64(mu), metric)
        S, g = np.asarray(fac.S), np.asarray(fac.g)
        if not bool(fac.ok) or not np.isfinite(S).all():
            mu, nu, rejected = max(mu * 10, 1e-10), 2.0, rejected + 1
            if mu > 1e12:
                return done(Stop.STALLED)
            continue
        S = 0.5 * (S + S.T)
        diagonal = np.diag(S) if p else np.zeros(0)
        largest = max(diagonal.max(initial=0.0), 1e-300)
        damped = S + np.diag(mu * np.maximum(diagonal, 1e-12 * largest) + 1e-14 * largest)
        step, held_new = box_qp(damped, g, lower - z, upper - z) if p else (np.zeros(0), held)
        predicted = float(cost - fac.rest - 2 * g @ step - step @ S @ step)
        moved = chain.move(states, z, fac, step, data)
        z_new = np.clip(z + step, lower, upper) if p else z
        arrow_new = chain.normal(moved, z_new, data)
        cost_new = float(np.asarray(arrow_new.P)[-1, -1])
        gain = min(max((cost - cost_new) / max(predicted, 1e-300), -1e6), 1e6)
        small = predicted < tolerance and mu <= 1e-3
        if np.isfinite(cost_new) and cost_new <= cost + 1e-12 * abs(cost):
            states, z, arrow, cost, held = moved, z_new, arrow_new, cost_new, held_new
            history.append(cost)
            if progress is not None:
                progress(iteration, cost, float(np.abs(step).max(initial=0.0)))
            mu = max(mu * (0.05 if gain > 0.75 else max(1 / 3, 1 - (2 * gain - 1) ** 3)), 1e-13)
            nu = 2.0
            if small:
                return done(Stop.CONVERGED, True)
        else:
            rejected += 1
            # Rounding: near the minimum the cost cannot fall by what is predicted.
            if small or predicted < 1e-11 * cost:
                return done(Stop.CONVERGED, True)
            mu, nu = max(mu, 1e-9) * nu * 4, nu * 2
            if mu > 1e12:
                return done(Stop.STALLED)
    return done(Stop.ITERATIONS)
