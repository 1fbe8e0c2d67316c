# SPDX-License-Identifier: Apache-2.0
"""Maximum likelihood with noise on both the counts and the accelerometer, and the covariance it implies.

Each sample is ``r = R_k g + o_k + e_r``, ``a = g + e_a`` with ``R_k = C^-1 (M_u + M_k)`` and its own unknown true gravity ``g``.
Minimising over ``g`` leaves the total-least-squares distance ``e' V_k^-1 e`` with ``e = r - R_k a - o_k`` and
``V_k = S_r + s_a^2 R_k R_k'``; minimising over the offsets leaves the centred moments. The cost therefore depends on the data
only through a 9 x 9 covariance per dataset, and an iteration costs the same for ten samples as for a million.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multibody_estimation.calibration.model import SELECTION, Dataset, Moments, Noise, gravity_map
from multibody_estimation.calibration.scaling import Scaling
from multibody_estimation.errors import EstimationError


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Where the likelihood is largest, and how sharply."""

    matrix: np.ndarray
    """C in N and N m per count; shape (6, 6)."""
    body: np.ndarray
    """``[m, m c]`` in kg and kg m; shape (4,)."""
    offsets: np.ndarray
    """Counts; shape (k, 6)."""
    covariance: np.ndarray
    """Of the 36 entries of C, columns stacked, and the body, for unit noise scale; shape (40, 40)."""
    chi2: float
    """Mean squared residual in units of the noise; 1 when noise and model are right."""
    chi2_datasets: np.ndarray
    """The same per dataset; shape (k,)."""
    iterations: int


def total_variance(R: np.ndarray, noise: Noise) -> np.ndarray:
    """Covariance of ``r - R a - o``; counts^2, shape (6, 6)."""
    return np.diag(np.square(noise.strain)) + noise.acceleration**2 * R @ R.T


def residual_moment(m: Moments, R: np.ndarray) -> np.ndarray:
    """Centred second moment of ``r - R a``; shape (6, 6)."""
    cross = m.ra @ R.T
    return m.rr - cross - cross.T + R @ m.aa @ R.T


def map_jacobian(C: np.ndarray, R: np.ndarray, scaling: Scaling) -> np.ndarray:
    """Derivative of ``vec(R_k)``, ``R_k = C^-1 (M_u + M_k)``, in the 40 scaled unknowns; shape (18, 40)."""
    S = np.linalg.inv(C)
    return np.concatenate([-np.kron(R.T, S), np.kron(np.eye(3), S) @ SELECTION], axis=1) * scaling.parameters


def information(
    C: np.ndarray, body: np.ndarray, moments: Sequence[Moments], datasets: Sequence[Dataset], noise: Noise, scaling: Scaling
) -> np.ndarray:
    """Fisher information of the 40 scaled unknowns with the offsets, and a drift where there is one, eliminated; shape (40, 40)."""
    H, cross, warm = np.zeros((40, 40)), np.zeros((40, 6)), np.zeros((6, 6))
    for m, d in zip(moments, datasets):
        R = np.linalg.solve(C, gravity_map(body + d.load.inertia))
        J = map_jacobian(C, R, scaling)
        V = np.linalg.inv(total_variance(R, noise))
        # The accelerometer's own noise is no excitation.
        spread = m.aa - noise.acceleration**2 * (1 - 1 / m.count) * np.eye(3)
        spread = spread if np.linalg.eigvalsh(spread)[0] > 0 else m.aa
        H += m.count * J.T @ np.kron(spread, V) @ J
        if m.at is not None:
            cross += m.count * J.T @ np.kron(m.at[:, None], V)
            warm += m.count * m.tt * V
    # The coefficients of the drift are shared by all datasets: six more unknowns, eliminated by a Schur complement.
    return H - cross @ np.linalg.solve(warm, cross.T) if warm.any() else H


def likelihood(
    datasets: Sequence[Dataset],
    noise: Noise,
    start: tuple[np.ndarray, np.ndarray],
    *,
    drift: bool = False,
    max_iterations: int = 50,
    tolerance: float = 1e-10,
) -> Likelihood:
    """Refine ``start = (matrix, body)`` by Levenberg-Marquardt on the profiled total-least-squares cost.

    ``drift``: the temperature's effect was estimated from these data and taken out; its uncertainty is in the covariance.
    """
    scaling = Scaling.of(datasets)
    moments = [Moments.of(d, drift=drift) for d in datasets]
    total = sum(m.count for m in moments)
    freedom = 6 * (total - len(moments)) - 40 - 6 * drift
    if freedom <= 0:
        raise EstimationError(f'{total} samples do not determine 40 unknowns; add orientations.')

    def maps(C: np.ndarray, body: np.ndarray) -> list[np.ndarray]:
        return [np.linalg.solve(C, gravity_map(body + d.load.inertia)) for d in datasets]

    def costs(C: np.ndarray, body: np.ndarray) -> np.ndarray:
        return np.array([
            m.count * np.trace(np.linalg.solve(total_variance(R, noise), residual_moment(m, R)))
            for m, R in zip(moments, maps(C, body))
        ])  # fmt: skip

    def gradient(C: np.ndarray, body: np.ndarray) -> np.ndarray:
        """Half the gradient: ``-sum V^-1 e g_hat'`` through the chain rule, with g_hat the best true gravity given the map."""
        g = np.zeros(40)
        for m, R in zip(moments, maps(C, body)):
            W = np.linalg.inv(total_variance(R, noise))
            K = noise.acceleration**2 * R.T @ W
            E = residual_moment(m, R)
            eg = (m.ra - R @ m.aa) + E @ K.T
            g -= m.count * map_jacobian(C, R, scaling).T @ (W @ eg).T.ravel()
        return g

    C, body = np.array(start[0], dtype=float), np.array(start[1], dtype=float)
    cost, damping, iteration = costs(C, body).sum(), 0.0, 0
    for iteration in range(1, max_iterations + 1):  # noqa: B007
        g = gradient(C, body)
        H = information(C, body, moments, datasets, noise, scaling)
        step = -np.linalg.solve(H + damping * np.diag(np.diag(H)), g) * scaling.parameters
        trial_C, trial_body = C + step[:36].reshape(6, 6).T, body + step[36:]
        trial = costs(trial_C, trial_body).sum()
        # The decrease a quadratic promises; below it the cost is at its rounding floor.
        promised = -float(g @ (step / scaling.parameters))
        if promised <= tolerance * max(1.0, freedom * 1e-3):
            break
        if np.isfinite(trial) and trial <= cost:
            C, body, cost, damping = trial_C, trial_body, trial, damping / 10 if damping > 1e-9 else 0.0
        elif damping > 1e8:
            break
        else:
            damping = max(10 * damping, 1e-6)
    H = information(C, body, moments, datasets, noise, scaling)
    covariance = np.linalg.inv(H) * np.outer(scaling.parameters, scaling.parameters)
    offsets = np.array([m.strain - R @ m.acceleration for m, R in zip(moments, maps(C, body))])
    parts = costs(C, body)
    share = np.array([6 * (m.count - 1) for m in moments]) * freedom / (6 * (total - len(moments)))
    return Likelihood(C, body, offsets, covariance, float(parts.sum() / freedom), parts / share, iteration)
