# SPDX-License-Identifier: Apache-2.0
"""What the centroidal estimator gives: a trajectory with standard deviations that prints, plots and saves itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation.centroidal.ddp import CONVERGED, STALLED
from multibody_estimation.centroidal.model import StateLayout
from multibody_estimation.errors import EstimationError

__all__ = ['CentroidalEstimate', 'load_centroidal', 'physical']

UNITS = {
    'center_of_mass': 'm', 'linear_momentum': 'N s', 'angular_momentum': 'N m s', 'force': 'N', 'moment': 'N m',
    'external_force': 'N', 'external_moment': 'N m', 'com_offset': 'm', 'bias_force': 'N', 'bias_moment': 'N m', 'mass_ratio': '',
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class CentroidalEstimate:
    """Smoothed centroidal motion in world axes and SI units."""

    time: np.ndarray
    """Seconds; (n,)."""
    states: np.ndarray
    """Momentum and force are physical also where the mass was estimated; (n, nx)."""
    covariance: np.ndarray
    """(n, nx, nx)."""
    layout: StateLayout
    mass: float
    """Nominal mass, kg."""
    status: int
    iterations: int
    cost: float
    misfit: Mapping[str, float]
    """Residuals by sensor over what is expected of them after the fit: about 1 where noise and model are right."""

    def __getitem__(self, part: str) -> np.ndarray:
        """Return a part of the state by name, e.g. ``center_of_mass``, ``force``; (n, 3)."""
        return self.states[:, self.layout[part]]

    def deviation(self, part: str) -> np.ndarray:
        """Return the standard deviations of a part; (n, 3)."""
        where = self.layout[part]
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2)[:, where])

    @property
    def sentence(self) -> str:
        """How it ended, in words."""
        if self.status == CONVERGED:
            return f'Converged in {self.iterations} steps.'
        if self.status == STALLED:
            return 'No step lowers the cost any more, though the optimum is not reached: check units and covariances.'
        return f'Not converged in {self.iterations} steps: raise iterations=, or check units and covariances.'

    def __str__(self) -> str:
        lines = [f'Centroidal motion over {self.time[-1] - self.time[0]:.3f} s, {len(self.time)} samples. {self.sentence}']
        lines.append(f'  {"part":<18} {"range":>26}   median std')
        for part in self.layout.slices:
            low, high, std = self[part].min(), self[part].max(), np.median(self.deviation(part))
            lines.append(f'  {part:<18} {low:>12.5g} .. {high:>10.5g}   {std:.2g} {UNITS[part]}')
        for block, size in self.misfit.items():
            verdict = (
                'as its noise says'
                if 0.5 < size < 1.3
                else 'noise given too large'
                if size <= 0.5
                else 'worse than its noise says'
            )
            lines.append(f'  {block}: residuals {size:.2f} sigma, {verdict}')
        return '\n'.join(lines)

    def plot(self, truth: np.ndarray | None = None) -> Any:
        """Return a matplotlib figure: each part over time with two standard deviations, and the truth where given (n, nx)."""
        from matplotlib.figure import Figure

        parts = list(self.layout.slices)
        figure = Figure(figsize=(9, 1.7 * len(parts)), layout='constrained')
        for axes, part in zip(figure.subplots(len(parts), 1, sharex=True), parts, strict=True):
            middle, band = self[part], 2 * self.deviation(part)
            for i in range(middle.shape[1]):
                (line,) = axes.plot(self.time, middle[:, i], lw=1, label='xyz'[i])
                axes.fill_between(
                    self.time, middle[:, i] - band[:, i], middle[:, i] + band[:, i], alpha=0.25, color=line.get_color()
                )
                if truth is not None:
                    axes.plot(self.time, truth[:, self.layout[part]][:, i], 'k:', lw=0.8)
            axes.set_ylabel(f'{part.replace("_", " ")}\n[{UNITS[part] or "-"}]', fontsize=8)
        axes.set_xlabel('time [s]')
        return figure

    def save(self, path: str | Path) -> None:
        """Write everything to an ``.npz`` file; `load_centroidal` reads it back."""
        flags = [name for name, on in vars(self.layout).items() if on is True]
        with open(path, 'wb') as file:
            np.savez_compressed(
                file, time=self.time, states=self.states, covariance=self.covariance, layout=np.array(flags, dtype='U32'),
                numbers=np.array([self.mass, self.status, self.iterations, self.cost]),
                blocks=np.array(list(self.misfit), dtype='U32'), misfit=np.array(list(self.misfit.values())),
            )  # fmt: skip


def load_centroidal(path: str | Path) -> CentroidalEstimate:
    """Read what `CentroidalEstimate.save` wrote."""
    if not Path(path).is_file():
        raise EstimationError(f'{path}: there is no such file.')
    with np.load(path) as data:
        mass, status, iterations, cost = data['numbers']
        misfit = dict(zip(data['blocks'].tolist(), data['misfit'].tolist(), strict=True))
        layout = StateLayout(**dict.fromkeys(data['layout'].tolist(), True))
        return CentroidalEstimate(
            data['time'],
            data['states'],
            data['covariance'],
            layout,
            float(mass),
            int(status),
            int(iterations),
            float(cost),
            misfit,
        )


def physical(layout: StateLayout, states: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Undo the scaling of `model`: inside, momentum and force are per nominal mass, outside p -> mu p and f -> mu f; (n, nx)."""
    states, covariance = np.array(states), np.array(covariance)
    if not layout.mass:
        return states, covariance
    ratio = states[:, layout['mass_ratio']]
    change = np.tile(np.eye(layout.size), (len(states), 1, 1))
    for part in ('linear_momentum', 'force'):
        where = layout[part]
        change[:, where, where] *= ratio[:, :, None]
        change[:, where, layout['mass_ratio']] = states[:, where, None]
        states[:, where] *= ratio
    return states, change @ covariance @ change.swapaxes(1, 2)
