# SPDX-License-Identifier: Apache-2.0
"""Roll a fitted model forward and compare with what was measured."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.grid import input_means
from multibody_estimation.identification.identify import prepare
from multibody_estimation.window import Window

__all__ = ['Prediction', 'predict']


@dataclass(frozen=True)
class Prediction:
    """A simulated stretch of a recording."""

    time: np.ndarray
    """Seconds on the recording's own clock, (n,)."""
    positions: np.ndarray
    """(nq, n), rad or m."""
    speeds: np.ndarray
    error: dict
    """Root mean square of prediction minus reading for each joint that an encoder reads."""

    def __str__(self) -> str:
        told = ', '.join(f'{joint} {1e3 * e:.2f} m(rad)' for joint, e in self.error.items())
        return f'Predicted {self.time[-1] - self.time[0]:.2f} s: off by {told} (rms).'


def predict(fit: Any, window: Window, *, start: float = 0.0, seconds: float | None = None, substeps: int = 4) -> Prediction:
    """Simulate from second ``start`` with the fitted model, from the state that the data before and around it give."""
    from multibody_estimation.identification.identify import track

    whole = track(fit, window)
    problem = prepare(fit.robot, [window], (), fit.settings.get('step'))
    grid = problem.grid
    own = grid.time - grid.shift[0]
    k = int(np.searchsorted(own, start - 1e-9))
    end = len(own) if seconds is None else int(np.searchsorted(own, start + seconds - 1e-9))
    if not 0 <= k < end - 1:
        raise EstimationError(f'Nothing to predict from {start} s; the recording has {own[-1]:.3f} s.')
    q, h = np.asarray(whole.positions), grid.step
    qd = np.gradient(q, h, axis=1)[:, k]
    model, inputs, numbers = problem.binding.apply(np.zeros(0))
    names = dynamics.joint_names(fit.robot.model)
    u = np.zeros((len(names), end - k))
    loss = np.zeros(len(names))
    for source, values, table in zip(fit.robot.inputs, inputs, grid.inputs):
        mean = np.asarray(input_means(table, grid.time[k:end], h, values['delay'])[2])
        u[names.index(source.joint)] += values['gain'] * mean + values['offset']
        loss[names.index(source.joint)] += values['back_emf']

    def rates(x, v, force):
        return v, dynamics.accelerations(model, x[:, None], v[:, None], (force - loss * v)[:, None])[:, 0]

    def advance(state, force):
        x, v = state
        for _ in range(substeps):
            dt = h / substeps
            a = rates(x, v, force)
            b = rates(x + dt / 2 * a[0], v + dt / 2 * a[1], force)
            c = rates(x + dt / 2 * b[0], v + dt / 2 * b[1], force)
            d = rates(x + dt * c[0], v + dt * c[1], force)
            x = x + dt / 6 * (a[0] + 2 * b[0] + 2 * c[0] + d[0])
            v = v + dt / 6 * (a[1] + 2 * b[1] + 2 * c[1] + d[1])
        return (x, v), state

    _, (positions, speeds) = jax.jit(lambda x, v, u: jax.lax.scan(advance, (x, v), u))(q[:, k], jnp.asarray(qd), u.T)
    positions, speeds = np.asarray(positions).T, np.asarray(speeds).T
    error = {}
    for samples, values in zip(grid.samples, numbers):
        for row, joint in enumerate(samples.index):
            r = positions[joint] + values['offset'][row] - samples.values[row, k:end]
            seen = samples.weight[row, k:end] > 0
            if samples.sensor.angular:
                r = r - 2 * np.pi * np.round(r / (2 * np.pi))
            error[names[joint]] = float(np.sqrt(np.mean(r[seen] ** 2))) if seen.any() else float('nan')
    return Prediction(own[k:end], positions, speeds, error)
