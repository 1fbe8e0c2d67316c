# SPDX-License-Identifier: Apache-2.0
"""Model-based recalibration: expected wrenches from a robot model, ridge to the factory matrix, temperature coefficient.

Andrade Chavez, Traversaro, Pucci, Nori, "Model based in situ calibration of six axis force torque sensors", Humanoids 2016:
``min (1/N) |W - R C'|^2 + lambda |C - C_w|^2`` with both sides centred, so that the offset drops out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multibody_estimation.errors import EstimationError


@dataclass(frozen=True, eq=False)
class Recalibration:
    """A matrix near the factory's that explains the model's wrenches."""

    matrix: np.ndarray
    """C in N and N m per count; shape (6, 6)."""
    secondary: np.ndarray
    """``C C_w^-1``, what robots apply to the factory's wrench; shape (6, 6)."""
    offset: np.ndarray
    """Wrench added, ``w = C r + k_T (T - T0) + offset``, N and N m; shape (6,)."""
    temperature_coefficient: np.ndarray
    """k_T in N/K and N m/K; shape (6,)."""
    reference_temperature: float
    """T0 in degrees Celsius, nan without temperatures."""
    ridge: float

    def wrench(self, strain: np.ndarray, temperature: np.ndarray | None = None) -> np.ndarray:
        """Wrench in N and N m for counts of shape (n, 6)."""
        w = np.asarray(strain) @ self.matrix.T + self.offset
        if temperature is not None and np.isfinite(self.reference_temperature):
            w = w + np.multiply.outer(np.asarray(temperature) - self.reference_temperature, self.temperature_coefficient)
        return w


def recalibrate(
    strain: np.ndarray,
    wrench: np.ndarray,
    factory: np.ndarray,
    *,
    ridge: float = 1e-3,
    temperature: np.ndarray | None = None,
    scaled: bool = True,
) -> Recalibration:
    """Fit to expected wrenches (n, 6) in N and N m for counts (n, 6).

    With ``scaled`` each count is measured by its spread, so that the ridge asks how far the wrench, not the entry, departs from
    the factory's; without it the ridge acts on the entries as published. The temperature's coefficient carries no ridge.
    """
    r, w, Cw = (np.asarray(x, dtype=float) for x in (strain, wrench, factory))
    if r.ndim != 2 or r.shape[1] != 6 or r.shape != w.shape or Cw.shape != (6, 6):
        raise EstimationError(f'Recalibration needs counts (n, 6), wrenches (n, 6) and a 6 x 6 matrix, not {r.shape}, {w.shape}.')
    if ridge < 0 or len(r) < 2:
        raise EstimationError('Recalibration needs at least two samples and a ridge that is not negative.')
    rm, wm = r.mean(axis=0), w.mean(axis=0)
    scale = np.where(r.std(axis=0) > 0, r.std(axis=0), 1.0) if scaled else np.ones(6)
    X, Y = (r - rm) / scale, w - wm
    reference, columns, penalty = np.nan, [X], np.full(6, ridge)
    if temperature is not None:
        T = np.asarray(temperature, dtype=float)
        reference = float(T.mean())
        columns.append((T - reference)[:, None])
        penalty = np.append(penalty, 0.0)
        if T.std() == 0:
            raise EstimationError('The temperature never changes, so its coefficient cannot be told. Leave it out.')
    # Stacked with the ridge as rows instead of normal equations, which would square the condition number.
    prior = np.zeros((len(penalty), 6))
    prior[:6] = (Cw * scale).T
    A = np.concatenate([np.column_stack(columns) / np.sqrt(len(r)), np.diag(np.sqrt(penalty))])
    b = np.concatenate([Y / np.sqrt(len(r)), np.sqrt(penalty)[:, None] * prior])
    x, *_ = np.linalg.lstsq(A, b, rcond=None)
    C = x[:6].T / scale
    drift = x[6] if temperature is not None else np.zeros(6)
    return Recalibration(C, np.linalg.solve(Cw.T, C.T).T, wm - C @ rm, drift, reference, float(ridge))


def choose_ridge(
    train: tuple[np.ndarray, np.ndarray],
    held_out: Sequence[tuple[np.ndarray, np.ndarray]],
    factory: np.ndarray,
    ridges: Sequence[float] = tuple(10.0 ** np.arange(-8, 3)),
) -> float:
    """Return the ridge whose matrix predicts the held-out (strain, wrench) sets best, offset of each set left free."""
    spread = np.concatenate([w - w.mean(axis=0) for _, w in held_out])
    unit = np.repeat([np.sqrt(np.mean(spread[:, :3] ** 2)), np.sqrt(np.mean(spread[:, 3:] ** 2))], 3)

    def error(ridge: float) -> float:
        C = recalibrate(*train, factory, ridge=ridge).matrix
        misses = [((w - w.mean(axis=0)) - (r - r.mean(axis=0)) @ C.T) / unit for r, w in held_out]
        return float(np.mean(np.concatenate(misses) ** 2))

    return float(min(ridges, key=error))
