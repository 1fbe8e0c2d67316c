# SPDX-License-Identifier: Apache-2.0
"""Bias and noise of the accelerometer, and temperature drift of the counts: what is removed before the matrix is fitted."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from multibody_estimation.calibration.model import GRAVITY, Dataset, Noise


def accelerometer_bias(datasets: Sequence[Dataset], *, prior: float = 0.2, noise: float = 0.05) -> tuple[np.ndarray, float]:
    """Return bias b (3,) in m/s^2 and radius in m/s^2 of the sphere ``|a - b| = radius`` through all readings.

    The radius is kept near standard gravity (2 %) and the bias near zero (``prior``, m/s^2), so that a part of the sphere does
    not trade one for the other. A radius far from 9.81 is a scale error, which would go straight into the matrix.
    """
    a = np.concatenate([d.acceleration for d in datasets])
    b, radius = np.zeros(3), GRAVITY
    for _ in range(20):
        u = a - b
        length = np.linalg.norm(u, axis=1)
        J = np.column_stack([u / length[:, None], np.ones(len(a))]) / noise
        W = np.diag([1 / prior**2] * 3 + [1 / (0.02 * GRAVITY) ** 2])
        right = J.T @ ((length - radius) / noise) - W @ np.array([*b, radius - GRAVITY])
        step = np.linalg.solve(J.T @ J + W, right)
        b, radius = b + step[:3], radius + step[3]
        if np.abs(step).max() < 1e-12:
            break
    return b, float(radius)


def temperature_drift(datasets: Sequence[Dataset], *, spread: float = 0.5, free: int = 12) -> tuple[np.ndarray, float] | None:
    """Return drift (6,) in counts per kelvin and reference temperature.

    None where the temperature moved by less than ``spread`` (K) within the datasets, or where they hold fewer than ``free`` samples
    beyond the four each needs for itself: the drift would then eat what little tells of the noise.

    Regresses, inside each dataset, what gravity and a constant leave of the counts on what they leave of the temperature
    (Frisch-Waugh), pooled over the datasets, since each has its own map and offset.
    """
    if not datasets or any(d.temperature is None or not np.isfinite(d.temperature).all() for d in datasets):
        return None
    if sum(len(d) - 4 for d in datasets) < free:
        return None
    top, bottom = np.zeros(6), 0.0
    for d in datasets:
        X = np.column_stack([d.acceleration, np.ones(len(d))])
        both = np.column_stack([d.strain, d.temperature])  # type: ignore[list-item]
        left = both - X @ np.linalg.lstsq(X, both, rcond=None)[0]
        top += left[:, :6].T @ left[:, 6]
        bottom += float(left[:, 6] @ left[:, 6])
    total = sum(len(d) for d in datasets)
    if bottom / total < spread**2:
        return None
    return top / bottom, float(np.mean(np.concatenate([d.temperature for d in datasets])))  # type: ignore[arg-type]


def corrected(datasets: Sequence[Dataset], bias: np.ndarray, drift: tuple[np.ndarray, float] | None) -> list[Dataset]:
    """Return the datasets without the accelerometer's bias and the temperature's drift."""
    result = []
    for d in datasets:
        strain = d.strain
        if drift is not None and d.temperature is not None:
            strain = strain - np.multiply.outer(d.temperature - drift[1], drift[0])
        result.append(replace(d, strain=strain, acceleration=d.acceleration - bias))
    return result


def estimate_noise(datasets: Sequence[Dataset], *, drift: bool = False) -> Noise:
    """Noise of a static sample from the data: the accelerometer's from its norm, the channels' from what gravity leaves.

    ``drift``: a temperature drift was estimated from the same data, which took a degree of freedom.
    """
    a = np.concatenate([d.acceleration for d in datasets])
    # The norm about the best centre: a bias that is still in the readings is no noise.
    off = np.linalg.norm(a - accelerometer_bias(datasets)[0], axis=1)
    acceleration = max(float(np.std(off, ddof=4 if len(a) > 5 else 1)), 1e-4)
    variance, freedom = np.zeros(6), -int(drift)
    for d in datasets:
        X = np.column_stack([d.acceleration, np.ones(len(d))])
        x, *_ = np.linalg.lstsq(X, d.strain, rcond=None)
        R = x[:3].T
        variance += np.sum((d.strain - X @ x) ** 2, axis=0) - (len(d) - 4) * acceleration**2 * np.sum(R**2, axis=1)
        freedom += len(d) - 4
    # Whole counts carry at least the noise of rounding.
    return Noise(tuple(np.sqrt(np.maximum(variance / max(freedom, 1), 1 / 12))), acceleration)
