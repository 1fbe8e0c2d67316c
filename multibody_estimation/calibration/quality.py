# SPDX-License-Identifier: Apache-2.0
"""Is the calibration good? Wrenches of samples it has not seen, forces on their sphere, torques on their disc, beside the factory's.

At rest ``f = m a`` lies on a sphere of radius ``m g`` and ``t = m c x a`` on a disc of radius ``|m c| g`` perpendicular to the
centre of mass c: both can be seen without knowing the orientation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from multibody_estimation.calibration.model import GRAVITY, Dataset, gravity_map
from multibody_estimation.calibration.result import Calibration
from multibody_estimation.errors import EstimationError


@dataclass(frozen=True, eq=False)
class Quality:
    """How far calibrated wrenches are from those that gravity makes; per dataset, in N and N m."""

    names: tuple[str, ...]
    force: np.ndarray
    """RMS per axis of the force in N; shape (k,)."""
    torque: np.ndarray
    """RMS per axis of the torque in N m; shape (k,)."""
    sphere: np.ndarray
    """RMS of ``|f| - m g`` in N; shape (k,)."""
    disc: np.ndarray
    """RMS distance of the torques from the plane of their disc in N m; nan where the centre is at the sensor; shape (k,)."""
    full_force: np.ndarray
    """``m g`` in N; shape (k,)."""
    full_torque: np.ndarray
    """``|m c| g`` in N m; shape (k,)."""
    seen: bool
    """Whether the samples took part in the calibration."""

    @property
    def overall(self) -> tuple[float, float]:
        """RMS over the datasets, N and N m."""
        return float(np.sqrt(np.mean(self.force**2))), float(np.sqrt(np.mean(self.torque**2)))

    def __str__(self) -> str:
        lines = [f'RMS of calibrated minus expected wrench, samples {"of the fit" if self.seen else "the fit has not seen"}:']
        for i, name in enumerate(self.names):
            plane = '' if np.isnan(self.disc[i]) else f', {self.disc[i]:.4f} N m off the disc of {self.full_torque[i]:.3f} N m'
            lines.append(
                f'  {name}: {self.force[i]:.3f} N, {self.torque[i]:.4f} N m; {self.sphere[i]:.3f} N off the sphere of '
                f'{self.full_force[i]:.2f} N{plane}'
            )
        force, torque = self.overall
        return '\n'.join([*lines, f'  overall: {force:.3f} N, {torque:.4f} N m'])


def quality(
    calibration: Calibration, datasets: Sequence[Dataset], *, matrix: np.ndarray | None = None, seen: bool = False
) -> Quality:
    """Compare with the wrench gravity makes of body and load.

    ``matrix`` takes another matrix, e.g. the factory's, with the same body; its offset is the best for each dataset, so that only
    the matrix is judged. The offset of the calibration is likewise that of the dataset where it is known.
    """
    if not datasets:
        raise EstimationError('There are no samples to judge the calibration by.')
    rows = []
    for d in datasets:
        inertia = calibration.body + d.load.inertia
        a = d.acceleration - calibration.accelerometer_bias
        expected = a @ gravity_map(inertia).T
        used = replace(calibration, offset=calibration.offsets.get(d.name, calibration.offset))
        if matrix is not None:
            used = replace(used, matrix=np.asarray(matrix, dtype=float))
        w = used.wrench(d.strain, d.temperature)
        if matrix is not None:
            w = w - (w - expected).mean(axis=0)
        e = w - expected
        lever, full = np.linalg.norm(inertia[1:]), GRAVITY * inertia
        # Where the centre is within a millimetre of the sensor the disc is a point and its plane unknown.
        off = w[:, 3:] @ inertia[1:] / lever if lever > 1e-3 * inertia[0] else np.full(len(w), np.nan)
        rows.append((
            np.sqrt(np.mean(e[:, :3] ** 2)), np.sqrt(np.mean(e[:, 3:] ** 2)),
            np.sqrt(np.mean((np.linalg.norm(w[:, :3], axis=1) - inertia[0] * np.linalg.norm(a, axis=1)) ** 2)),
            np.sqrt(np.mean(off**2)), full[0], GRAVITY * lever,
        ))  # fmt: skip
    force, torque, sphere, disc, full_force, full_torque = np.array(rows).T
    return Quality(tuple(d.name for d in datasets), force, torque, sphere, disc, full_force, full_torque, seen)


def held_out(
    datasets: Sequence[Dataset], calibrate: Callable[[Sequence[Dataset]], Calibration], *, folds: int = 5
) -> Quality | None:
    """Fit without every fold of the samples in turn and judge it there; None where fewer than four would be left in a dataset.

    Folds are drawn by striding through the samples, so the same data give the same numbers.
    """
    folds = min(folds, *(len(d) for d in datasets)) if datasets else 0
    if folds < 2 or any(len(d) - -(-len(d) // folds) < 4 for d in datasets):
        return None
    parts = []
    for fold in range(folds):
        train, test = [], []
        for d in datasets:
            out = np.arange(len(d)) % folds == fold
            train.append(_rows(d, ~out))
            test.append(_rows(d, out))
        try:
            parts.append((quality(calibrate(train), test), np.array([len(d) for d in test])))
        except EstimationError:
            # A fold may leave too little; what the others say still holds.
            continue
    if not parts:
        return None
    weight = np.array([n for _, n in parts], dtype=float)
    weight /= weight.sum(axis=0)

    def pooled(name: str) -> np.ndarray:
        return np.sqrt(np.sum(weight * np.square([getattr(q, name) for q, _ in parts]), axis=0))

    first = parts[0][0]
    return Quality(first.names, pooled('force'), pooled('torque'), pooled('sphere'), pooled('disc'), first.full_force,
                   first.full_torque, False)  # fmt: skip


def _rows(d: Dataset, rows: np.ndarray) -> Dataset:
    warm = None if d.temperature is None else d.temperature[rows]
    return replace(d, strain=d.strain[rows], acceleration=d.acceleration[rows], temperature=warm)


@dataclass(frozen=True, eq=False)
class Comparison:
    """A calibration beside the factory matrix, on the same samples."""

    ours: Quality
    factory: Quality

    def __str__(self) -> str:
        (f, t), (ff, ft) = self.ours.overall, self.factory.overall
        return (
            f'This calibration is off by {f:.3f} N and {t:.4f} N m (RMS), the factory matrix by {ff:.3f} N and {ft:.4f} N m: '
            f'{ff / max(f, 1e-12):.1f} and {ft / max(t, 1e-12):.1f} times as much.'
        )


def compare_with_factory(calibration: Calibration, datasets: Sequence[Dataset], factory: np.ndarray) -> Comparison:
    """Judge both matrices on samples, preferably held out, each with its best offset per dataset."""
    return Comparison(
        quality(calibration, datasets, matrix=calibration.matrix),
        quality(calibration, datasets, matrix=np.asarray(factory, dtype=float)),
    )
