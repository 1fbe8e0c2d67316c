# SPDX-License-Identifier: Apache-2.0
"""How much the estimates hang on what was not estimated: the weight, the time step, numbers of the model taken as known.

At the optimum the gradient is zero; where a setting theta moves it by dg/dtheta, the estimates move by -H^-1 dg/dtheta (states and
parameters together; the block elimination gives both). For a fixed number of the model the gradient's slope is a column of the
normal equations of the problem with that number free (Gauss-Newton).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification.binding import bind
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.parameters import Parameter
from multibody_estimation.identification.problem import Problem, prepare
from multibody_estimation.least_squares import Arrow, factorise

__all__ = ['Influence', 'influence']


@dataclass(frozen=True)
class Influence:
    """Change of each parameter for a change of each setting."""

    names: tuple[str, ...]
    settings: tuple[str, ...]
    slopes: np.ndarray
    """d parameter / d log setting, SI units, (p, s): a tenth of it is the change for 10 % more of the setting."""
    in_std: np.ndarray
    """The same in standard deviations of the parameter."""

    def __str__(self) -> str:
        wide = max(len(n) for n in self.names)
        head = f'  {"10 % more of":<{wide}}  ' + '  '.join(f'{s:>18}' for s in self.settings)
        rows = [f'  {n:<{wide}}  ' + '  '.join(f'{0.1 * x:>+14.3f} std' for x in row) for n, row in zip(self.names, self.in_std)]
        return '\n'.join([head, *rows])


def influence(fit: Fit, of: Iterable[str] = ('weight', 'step')) -> Influence:
    """Linearised influence on a fit of ``identify``: ``weight``, ``step`` (the second-order error that deferred correction takes out: what
    it would do without), or the dotted name of any number that was taken as known, e.g. ``rod.mass`` or ``arm.friction_velocity``.
    """
    if fit.problem is None or not fit.problem.form.free:
        raise EstimationError('Influence needs the result of identify itself, not a loaded or tracked one.')
    if fit.settings.get('form') == 'arm':
        raise EstimationError(
            'Influence is not computed for robots of four joints and more: their rows are weighted by torque noise, not by one weight.'
        )
    of = tuple(of)
    columns = []
    for name in of:
        if name == 'weight':
            columns.append(_shift(fit, _gradient_by_weight(fit)))
        elif name == 'step':
            columns.append(_shift(fit, _gradient_by_step(fit)))
        else:
            columns.append(_by_number(fit, name))
    slopes = np.stack(columns, axis=1) * fit.problem.binding.slopes(fit.solution.parameters)[:, None]
    with np.errstate(divide='ignore', invalid='ignore'):
        in_std = np.where(fit.std[:, None] > 0, slopes / fit.std[:, None], 0.0)
    return Influence(fit.names, of, slopes, in_std)


def _normal(fit: Fit, **changes: Any) -> Arrow:
    problem: Problem = fit.problem
    settings = {'by_mass': True, 'correction': fit.correction, 'weight': fit.settings['weight']} | changes
    data = problem.data(settings.pop('weight'), **settings)
    return problem.form.chain.normal(fit.solution.states, fit.solution.parameters, data)


def _shift(fit: Fit, slope: tuple[Any, Any]) -> np.ndarray:
    """Move of the scaled parameters for a gradient slope of states (N, b) and parameters (p,)."""
    problem: Problem = fit.problem
    arrow = _normal(fit)
    p = arrow.P.shape[0] - 1
    C, P = arrow.C.at[:, :, -1].set(slope[0]), arrow.P.at[:p, p].set(slope[1]).at[p, :p].set(slope[1])
    fac = factorise(replace(arrow, C=C, P=P), jnp.float64(1e-13), problem.metric)
    free = np.flatnonzero((np.asarray(fit.held) == 0) & np.isfinite(fit.std))
    out = np.zeros(p)
    out[free] = -np.linalg.solve(np.asarray(fac.S)[np.ix_(free, free)], np.asarray(fac.g)[free])
    return out


def _difference(a: Arrow, b: Arrow, scale: float) -> tuple[Any, Any]:
    return (a.C[:, :, -1] - b.C[:, :, -1]) * scale, (a.P[:-1, -1] - b.P[:-1, -1]) * scale


def _gradient_by_weight(fit: Fit) -> tuple[Any, Any]:
    """d gradient / d log weight: rows of the dynamics scale with 1/weight, the gradient with its square; exact by two points."""
    w = fit.settings['weight']
    return _difference(_normal(fit, weight=w * 2**0.5), _normal(fit, weight=w), 4.0)


def _gradient_by_step(fit: Fit) -> tuple[Any, Any]:
    """d gradient / d log step without correction: the defect grows with the square of the step."""
    problem: Problem = fit.problem
    data = problem.data(fit.settings['weight'])
    defect = problem.form.defect(fit.solution.states, fit.solution.parameters, data)
    zero = jnp.zeros_like(defect)
    return _difference(_normal(fit, correction=zero), _normal(fit, correction=defect), 2.0)


def _by_number(fit: Fit, name: str) -> np.ndarray:
    """d scaled parameters / d log number."""
    problem: Problem = fit.problem
    here = bind(fit.robot, (Parameter(name, label=name),)).parameters[0]
    if not here.start:
        raise EstimationError(f'{name} is zero: 10 % more of it is nothing. Give it a value, or estimate it.')
    known = tuple(replace(p, start=float(v), scale=p.step) for p, v in zip(problem.binding.parameters, fit.values))
    wide = prepare(fit.robot, problem.windows, (*known, replace(here, scale=abs(here.start))), problem.grid.step,
                   evaluation=problem.form.evaluation)  # fmt: skip
    z = wide.binding.scaled(np.append(fit.values, here.start))
    data = wide.data(fit.settings['weight'], by_mass=True, correction=fit.correction)
    arrow = wide.form.chain.normal(fit.solution.states, z, data)
    S = np.asarray(factorise(arrow, jnp.float64(1e-13), wide.metric).S)
    free = np.flatnonzero((np.asarray(fit.held) == 0) & np.isfinite(fit.std))
    out = np.zeros(len(fit.values))
    out[free] = -np.linalg.solve(S[np.ix_(free, free)], S[free, -1]) * np.sign(here.start)
    return out
