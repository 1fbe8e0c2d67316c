# SPDX-License-Identifier: Apache-2.0
"""`Motion`: the estimated motion and the forces that the model does not explain, each with its covariance.

States x and parameters chi have the joint posterior of the linearised problem: cov(x | chi) = T^-1 from the block factorisation, and a
parameter step moves the states by dx = X dchi, X = -T^-1 C. What is read off a window of three stages (speed, external force) gets
its covariance by the window's own Jacobian.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels.arrow import back
from multibody_estimation.least_squares import factorise, joint_covariance

__all__ = ['Motion', 'motion_of']


@dataclass(frozen=True)
class Motion:
    """All over the stages in use; nq joints, time last."""

    time: np.ndarray
    positions: np.ndarray
    """(nq, n), rad or m."""
    positions_std: np.ndarray
    speeds: np.ndarray
    """(nq, n), rad/s or m/s."""
    speeds_std: np.ndarray
    external: np.ndarray
    """Joint force that the model does not explain, positive where it pushes the joint forward; (nq, n-2), N m or N; zero across seams."""
    external_covariance: np.ndarray
    """(nq, nq, n-2). What the weight allows at most, less what the data tell."""

    @property
    def external_std(self) -> np.ndarray:
        """(nq, n-2)."""
        return np.sqrt(np.einsum('iik->ik', self.external_covariance))


back_ = jax.jit(back)


def motion_of(fit: Any) -> Motion:
    """Covariances at the solution of a fit."""
    problem, last = fit.problem, fit.solution
    form, grid = problem.form, problem.grid
    nq, n, h, p = form.nq, len(grid), grid.step, form.columns
    z = np.asarray(last.parameters)
    arm = fit.settings.get('form') == 'arm'
    if arm:
        from multibody_estimation.identification.arm_identify import spread as force_spread

        reference = force_spread(problem, np.asarray(fit.settings['torque_noise']), last.states, z)
        data = problem.data(1.0, reference=reference)
    else:
        data = problem.data(fit.settings['weight'], by_mass=True, correction=fit.correction)
    pairs = np.asarray(joint_covariance(last.arrow, problem.metric))
    X = np.zeros((n, nq, p))
    if p:
        fac = factorise(last.arrow, jnp.float64(1e-13), problem.metric)
        still = np.asarray(back_(fac, jnp.zeros(p)))
        for i in range(p):
            moved = np.asarray(back_(fac, jnp.zeros(p).at[i].set(1.0))) - still
            X[:, :, i] = moved.reshape(-1)[: n * nq].reshape(n, nq)
    slopes = problem.binding.slopes(z)
    S = np.where(np.isfinite(fit.covariance), fit.covariance, 0.0) / np.outer(slopes, slopes) if p else np.zeros((0, 0))

    def windows(width: int) -> tuple[np.ndarray, np.ndarray]:
        """Covariance (n - width + 1, w, w) of the states of each window for known parameters, and their slopes (.., w, p)."""
        m = n - width + 1
        at = np.arange(m)[:, None] * nq + np.arange(width * nq)
        block, place = at // form.block, at % form.block
        first = block[:, :1]
        local = place + (block - first) * form.block
        cov = pairs[first[:, :, None], local[:, :, None], local[:, None, :]]
        return cov, np.concatenate([X[k : k + m] for k in range(width)], axis=1)

    def spread(rows: np.ndarray, direct: np.ndarray | None, width: int) -> np.ndarray:
        """Covariance (m, r, r) of rows (m, r, w) x + direct (m, r, p) chi."""
        cov, along = windows(width)
        total = rows @ along + (direct if direct is not None else 0.0)
        return rows @ cov @ rows.swapaxes(1, 2) + total @ S @ total.swapaxes(1, 2)

    eye = np.eye(nq)
    position = spread(np.broadcast_to(eye, (n, nq, nq)), None, 1)
    quotient = np.concatenate([-eye, 0 * eye, eye], axis=1) / (2 * h)
    speed = spread(np.broadcast_to(quotient, (n - 2, nq, 3 * nq)), None, 3)
    (force, M), (_, J) = form.forces(last.states, z, data), form.rows(last.states, z, data)
    # Rows are M^-1 force / weight; those of an arm force / its standard deviation.
    scale = np.moveaxis(np.asarray(M), -1, 0) * fit.settings['weight']
    if arm:
        scale = np.einsum('ik,ij->kij', np.asarray(reference), np.eye(nq))
    J = np.moveaxis(np.asarray(J), -1, 0)
    external = scale @ spread(J[:, :, : 3 * nq], J[:, :, 3 * nq :] if p else None, 3) @ scale.swapaxes(1, 2)

    used, q = grid.count, np.asarray(last.states)
    speeds, speeds_std = np.zeros((nq, used)), np.full((nq, used), np.nan)
    spread_of = np.sqrt(np.einsum('kii->ik', speed))
    for a, b in zip(grid.starts[:-1], grid.starts[1:]):
        speeds[:, a:b] = np.gradient(q[:, a:b], h, axis=1, edge_order=2)
        speeds_std[:, a + 1 : b - 1] = spread_of[:, a : b - 2]
        speeds_std[:, [a, b - 1]] = speeds_std[:, [a + 1, b - 2]]
    linked = grid.linked[: used - 2]
    return Motion(
        grid.time[:used], q[:, :used], np.sqrt(np.einsum('kii->ik', position))[:, :used], speeds, speeds_std,
        np.asarray(force)[:, : used - 2] * linked, np.moveaxis(external, 0, -1)[:, :, : used - 2] * linked,
    )  # fmt: skip
