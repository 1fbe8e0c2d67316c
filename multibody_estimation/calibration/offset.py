# SPDX-License-Identifier: Apache-2.0
"""Offset of the counts of one dataset, by linear regression on the accelerometer.

The noise-free counts of a body held at rest lie on a two-dimensional ellipsoid inside a three-dimensional affine subspace of R^6
("Whole-body Compliant Dynamical Contacts in Cognitive Humanoids", project 600716, force/torque calibration, result 1). The offset
is the point of that subspace where gravity would vanish, which the accelerometer gives linearly (result 2.1). The centre of the
ellipsoid is the same point, found without an accelerometer: a check on the first.
"""

from dataclasses import dataclass

import numpy as np

from multibody_estimation.calibration.model import Dataset
from multibody_estimation.errors import EstimationError


@dataclass(frozen=True, eq=False)
class Offset:
    """Offset of one dataset and how flat the counts are."""

    offset: np.ndarray
    """Counts at zero wrench; shape (6,)."""
    map: np.ndarray
    """``dr/da`` in counts per m/s^2; shape (6, 3)."""
    basis: np.ndarray
    """Orthonormal basis U1 of the subspace the counts move in; shape (6, 3)."""
    singular_values: np.ndarray
    """RMS spread of the counts along the six principal directions; shape (6,). The last three are noise."""
    residual: float
    """RMS distance of the counts from the fitted map, in counts."""


def offset_by_regression(dataset: Dataset, *, project: bool = True) -> Offset:
    """Solve ``U1'(r - r_mean) = Gamma a + o'``, then ``o = r_mean + U1 o'``; needs four affinely independent orientations.

    With ``project=False`` the plain regression ``r = R a + o`` is solved, 18 + 6 unknowns; its offset differs only by noise.
    """
    r, a = dataset.strain, dataset.acceleration
    _enough(dataset)
    rm = r.mean(axis=0)
    U, s, _ = np.linalg.svd((r - rm).T / np.sqrt(len(r)), full_matrices=False)
    U1 = U[:, :3]
    y = (r - rm) @ U1 if project else r - rm
    x, *_ = np.linalg.lstsq(np.column_stack([a, np.ones(len(a))]), y, rcond=None)
    lift = U1 if project else np.eye(6)
    R, o = lift @ x[:3].T, rm + lift @ x[3]
    spread = np.zeros(6)
    spread[: len(s)] = s
    return Offset(o, R, U1, spread, float(np.sqrt(np.mean((r - a @ R.T - o) ** 2))))


def offset_by_ellipsoid(dataset: Dataset) -> np.ndarray:
    """Centre of the ellipsoid the counts lie on, without the accelerometer; shape (6,).

    Fits ``y'Qy + q'y = 1`` to ``y = U1'(r - r_mean)`` and returns ``r_mean - U1 Q^-1 q / 2``. Badly conditioned when the
    orientations cover only a part of the sphere: a picture and a check, not the estimate.
    """
    r = dataset.strain
    if len(r) < 9:
        raise EstimationError(f"Dataset '{dataset.name}': an ellipsoid needs at least 9 well spread samples; there are {len(r)}.")
    rm = r.mean(axis=0)
    U, s, _ = np.linalg.svd((r - rm).T / np.sqrt(len(r)), full_matrices=False)
    U1, scale = U[:, :3], s[:3]
    y = (r - rm) @ U1 / scale
    i, j = np.triu_indices(3)
    quadratic = y[:, i] * y[:, j] * np.where(i == j, 1.0, 2.0)
    x, *_ = np.linalg.lstsq(np.column_stack([quadratic, y]), np.ones(len(y)), rcond=None)
    Q = np.zeros((3, 3))
    Q[i, j] = Q[j, i] = x[:6]
    if np.linalg.eigvalsh(Q)[0] <= 0:
        raise EstimationError(
            f"Dataset '{dataset.name}': the counts do not close to an ellipsoid; the orientations cover too little of the sphere."
        )
    return rm - U1 @ (scale * np.linalg.solve(Q, x[6:]) / 2)


def _enough(dataset: Dataset) -> None:
    centred = dataset.acceleration - dataset.acceleration.mean(axis=0)
    if len(dataset) < 4 or np.linalg.matrix_rank(centred, tol=1e-3 * np.sqrt(len(dataset))) < 3:
        raise EstimationError(
            f"Dataset '{dataset.name}': the offset needs four orientations that do not lie in one plane; add samples."
        )
