# SPDX-License-Identifier: Apache-2.0
"""What an estimate is worth: covariance, correlation, directions that the data cannot see."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels.arrow import Arrow, factor_twin
from multibody_estimation.least_squares.levenberg_marquardt import factorise

__all__ = ['Information', 'joint_covariance', 'log_determinant', 'parameter_information', 'state_covariance']


@dataclass(frozen=True)
class Information:
    """Second-order picture of the parameters at the solution, in the solver's (scaled) units."""

    S: np.ndarray
    """Information matrix: Schur complement without damping, (p, p)."""
    covariance: np.ndarray
    """Its inverse on the free, visible parameters; zero rows for held ones, infinite variance for invisible ones; (p, p)."""
    blind: tuple[np.ndarray, ...]
    """Unit directions that the data cannot see, each (p,)."""


def parameter_information(arrow: Arrow, metric: Any, held: np.ndarray, *, blind_below: float = 1e-9) -> Information:
    """Covariance of the parameters from the normal equations.

    ``held`` marks parameters at a bound; they are taken as known. Directions whose information, with every parameter scaled to
    unit diagonal, falls below ``blind_below`` of the largest are blind: their parameters get an infinite variance.
    """
    fac = factorise(arrow, jnp.float64(1e-13), metric)
    S = 0.5 * (np.asarray(fac.S) + np.asarray(fac.S).T)
    p = len(S)
    free = np.flatnonzero(np.asarray(held) == 0)
    covariance = np.zeros((p, p))
    if not free.size:
        return Information(S, covariance, ())
    diagonal = np.clip(np.diag(S)[free], 0, None)
    # What is lost in the subtraction P - Y'Y cannot be told from zero.
    noise = 1e-11 * np.abs(np.diag(np.asarray(arrow.P))[:-1][free])
    seen = diagonal > np.maximum(noise, 1e-300)
    blind = [np.eye(p)[free[i]] for i in np.flatnonzero(~seen)]
    covariance[free[~seen], free[~seen]] = np.inf
    index = free[seen]
    if index.size:
        d = 1 / np.sqrt(diagonal[seen])
        values, vectors = np.linalg.eigh(d[:, None] * S[np.ix_(index, index)] * d)
        dark = values < blind_below * values.max()
        inverse = (vectors[:, ~dark] / values[~dark]) @ vectors[:, ~dark].T
        covariance[np.ix_(index, index)] = d[:, None] * inverse * d
        for k in np.flatnonzero(dark):
            direction = np.zeros(p)
            direction[index] = d * vectors[:, k]
            blind.append(direction / np.linalg.norm(direction))
            for i in np.flatnonzero(np.abs(vectors[:, k]) > 1e-3):
                covariance[index[i], index[i]] = np.inf
    return Information(S, covariance, tuple(blind))


@jax.jit
def state_covariance(arrow: Arrow, metric: jax.Array) -> jax.Array:
    """Covariance blocks of the states for known parameters, (N, b, b): the diagonal of T^-1 by the backward recursion."""
    return joint_covariance(arrow, metric)[:, : arrow.D.shape[1], : arrow.D.shape[1]]


@jax.jit
def joint_covariance(arrow: Arrow, metric: jax.Array) -> jax.Array:
    """Covariance of each block together with the one after it, for known parameters, (N, 2b, 2b)."""
    b = arrow.D.shape[1]
    fac = factor_twin(arrow, jnp.float64(1e-13), metric)

    def step(following, block):
        U, z = block
        # x_k = -U^-1 (V x_{k+1} + e), e white: cov_k = U^-1 (I + V cov_{k+1} V') U^-T
        inner = jnp.eye(b) + z[:, :b] @ following @ z[:, :b].T
        half = jax.scipy.linalg.solve_triangular(U, inner)
        cov = jax.scipy.linalg.solve_triangular(U, half.T)
        cross = -jax.scipy.linalg.solve_triangular(U, z[:, :b] @ following)
        return cov, jnp.block([[cov, cross], [cross.T, following]])

    return jax.lax.scan(step, jnp.zeros((b, b)), (fac.U, fac.Z), reverse=True)[1]


def log_determinant(arrow: Arrow, metric: Any) -> float:
    """Log determinant of the states' normal matrix T."""
    U = np.asarray(factorise(arrow, jnp.float64(1e-13), metric).U)
    return float(2 * np.log(np.diagonal(U, axis1=1, axis2=2)).sum())
