# SPDX-License-Identifier: Apache-2.0
"""The front door: recorded centroidal measurements in, a trajectory with standard deviations out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation._jax import jax
from multibody_estimation.centroidal.ddp import CONVERGED, DEFAULT, STALLED, Settings, residual, solve
from multibody_estimation.centroidal.model import BLOCKS, StateLayout, jacobian
from multibody_estimation.centroidal.problem import GRAVITY, Measurement, ProcessNoise, assemble
from multibody_estimation.centroidal.robust import Loss
from multibody_estimation.errors import EstimationError
from multibody_estimation.window import Window

__all__ = ['CentroidalEstimate', 'estimate_centroidal', 'load_centroidal']

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


def measurements_of(window: Window) -> list[Measurement]:
    """Read the signals of a window that are named like `BLOCKS`; ``contact_anchor`` holds the anchors of ``contact_wrench``."""
    found = []
    for block in BLOCKS:
        if block not in window or not len(window[block]):
            continue
        signal = window[block]
        if not signal.noise:
            raise EstimationError(
                f'{block}: its noise is not known. Give the signal noise=, the standard deviation of each column.'
            )
        time, anchor = window.seconds(block), None
        if block == 'contact_wrench' and 'contact_anchor' in window:
            points = window['contact_anchor']
            # A foot is put down at an instant: the anchor last told holds, it is not interpolated.
            last = np.searchsorted(points.stamps, signal.stamps, side='right') - 1
            anchor = points.values[np.maximum(last, 0)]
        found.append(Measurement(block, time, signal.values, np.array(signal.noise), anchor))
    if not found:
        raise EstimationError(f'The window has none of the signals {", ".join(BLOCKS)}; it has {", ".join(window) or "none"}.')
    return found


def estimate_centroidal(
    data: Window | Sequence[Measurement],
    *,
    mass: float,
    gravity: Sequence[float] = GRAVITY,
    noise: ProcessNoise | None = None,
    switches: Sequence[float] = (),
    prior: Mapping[str, Any] | None = None,
    layout: StateLayout | None = None,
    loss: Loss | str = 'none',
    settings: Settings = DEFAULT,
    without_contact: bool = False,
) -> CentroidalEstimate:
    """Smooth the centroidal motion of a legged robot over a recording.

    Args:
        data: a window with signals named like `BLOCKS`, or measurements.
        mass: kg, of the whole robot.
        gravity: m/s^2, world axes.
        noise: how fast forces may change.
        switches: times of contact changes, s.
        prior: (mean, standard deviation) of parts of the first state.
        layout: further states to estimate.
        loss: ``none``, ``huber``, ``student``, or a `Loss` with its own parameter.
        settings: of the solver.
        without_contact: go ahead without any contact wrench: the force is then told by the motion alone.
    """
    measurements = measurements_of(data) if isinstance(data, Window) else list(data)
    layout, loss = layout or StateLayout(), Loss(loss) if isinstance(loss, str) else loss
    problem = assemble(
        measurements, mass=mass, gravity=gravity, noise=noise, switches=switches, prior=prior, layout=layout, loss=loss
    )
    if not without_contact:
        pressed = [np.linalg.norm(m.values[:, :3], axis=1).max() for m in measurements if m.block == 'contact_wrench']
        weight = mass * float(np.linalg.norm(gravity))
        if not pressed:
            raise EstimationError(
                'No contact at all: nothing measures a contact wrench. Add contact_wrench, or say without_contact=True to let the '
                'motion alone tell the force.'
            )
        if weight > 0 and pressed[0] < 0.02 * weight:
            raise EstimationError(
                f'No contact at all: the contact force never exceeds {pressed[0]:.3g} N, the robot weighs {weight:.4g} N. Is it hung '
                'up, or the sensors unplugged? Say without_contact=True if it really flies.'
            )
    found = jax.block_until_ready(solve(problem, settings))
    misfit = {}
    for block, info in problem.information.items():
        r = np.asarray(residual(problem, block, found.states))
        h = np.asarray(jacobian(layout, block, found.states, problem.anchor, problem.mass, problem.gravity))
        # A smoother follows part of the noise: the fitted residual has covariance R - H P H', not R.
        left = (np.abs(info).sum(axis=(1, 2)) > 0).sum() * BLOCKS[block] - np.einsum(
            'kij,kjm,kmn,kin->', info, h, np.asarray(found.covariance), h, optimize=True
        )
        misfit[block] = float(np.sqrt(np.einsum('ki,kij,kj->', r, info, r) / max(left, 1.0)))
    states, covariance = np.array(found.states), np.array(found.covariance)
    if layout.mass:
        # Inside, momentum and force are per nominal mass; outside they are what they are: p -> mu p, f -> mu f.
        ratio = states[:, layout['mass_ratio']]
        change = np.tile(np.eye(layout.size), (len(states), 1, 1))
        for part in ('linear_momentum', 'force'):
            where = layout[part]
            change[:, where, where] *= ratio[:, :, None]
            change[:, where, layout['mass_ratio']] = states[:, where, None]
            states[:, where] *= ratio
        covariance = change @ covariance @ change.swapaxes(1, 2)
    return CentroidalEstimate(
        np.array(problem.time),
        states,
        covariance,
        layout,
        float(mass),
        int(found.status),
        int(found.iterations),
        float(found.cost),
        misfit,
    )
