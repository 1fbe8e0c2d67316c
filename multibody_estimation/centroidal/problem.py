# SPDX-License-Identifier: Apache-2.0
"""From measurements, each at its own rate, to one estimation problem on one time line, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp, static, value
from multibody_estimation.centroidal.model import BLOCKS, StateLayout, dynamics
from multibody_estimation.centroidal.robust import Loss
from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['Measurement', 'Problem', 'ProcessNoise', 'assemble', 'prior_of', 'process_information']

GRAVITY = (0.0, 0.0, -9.81)


@dataclass(frozen=True, eq=False)
class Measurement:
    """Samples of one quantity of `BLOCKS`, in world axes and SI units."""

    block: str
    time: np.ndarray
    """Seconds, increasing; shape (k,)."""
    values: np.ndarray
    """Shape (k, d); the contact wrench is force, then moment about the anchor."""
    covariance: np.ndarray
    """Of the noise: (d, d), or one per sample (k, d, d), or standard deviations (d,), or one standard deviation."""
    anchor: np.ndarray | None = None
    """Point the moments are taken about, m; (3,) or (k, 3). Near the feet, so that lever times force noise stays small."""

    def __post_init__(self) -> None:
        name = self.block
        if name not in BLOCKS:
            raise EstimationError(f"'{name}' is nothing that can be measured here.{did_you_mean(name, BLOCKS)}")
        d = BLOCKS[name]
        time, values = np.asarray(self.time, float), np.asarray(self.values, float)
        if time.ndim != 1 or values.shape != (len(time), d):
            raise EstimationError(f'{name}: {time.shape} times and {values.shape} values; (k,) and (k, {d}) are needed.')
        if not len(time):
            raise EstimationError(f'{name}: the recording is empty. Leave the measurement out, or record again.')
        if not np.isfinite(time).all() or not np.isfinite(values).all():
            bad = int(np.flatnonzero(~(np.isfinite(time) & np.isfinite(values).all(axis=1)))[0])
            raise EstimationError(f'{name}: sample {bad} is not finite. Leave it out: a missing sample is no problem.')
        back = np.flatnonzero(np.diff(time) <= 0)
        if len(back):
            i = int(back[0]) + 1
            raise EstimationError(
                f'{name}: time runs backwards or stands still at sample {i} ({time[i - 1]:.6f} s, then {time[i]:.6f} s). '
                'Sort the samples by their stamps and drop repeated ones; Window.gather does both.'
            )
        covariance = np.asarray(self.covariance, float)
        if covariance.ndim < 2:
            covariance = np.diag(np.broadcast_to(covariance, (d,)) * np.abs(np.broadcast_to(covariance, (d,))))
        if covariance.shape not in ((d, d), (len(time), d, d)):
            raise EstimationError(f'{name}: a covariance of shape {covariance.shape} does not fit; ({d}, {d}) is needed.')
        _check_positive(covariance, f'The covariance of {name}')
        anchor = np.zeros(3) if self.anchor is None else np.asarray(self.anchor, float)
        if anchor.shape not in ((3,), (len(time), 3)) or not np.isfinite(anchor).all():
            raise EstimationError(f'{name}: the anchor must be finite and of shape (3,) or ({len(time)}, 3).')
        object.__setattr__(self, 'time', time)
        object.__setattr__(self, 'values', values)
        object.__setattr__(self, 'covariance', np.broadcast_to(covariance, (len(time), d, d)))
        object.__setattr__(self, 'anchor', np.broadcast_to(anchor, (len(time), 3)))


def _check_positive(matrices: np.ndarray, what: str) -> None:
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    if not np.isfinite(flat).all() or np.abs(flat - flat.swapaxes(1, 2)).max() > 1e-9 * np.abs(flat).max():
        raise EstimationError(f'{what} is not finite and symmetric. Give squared standard deviations in SI units.')
    least = np.linalg.eigvalsh(flat)[:, 0]
    if least.min() <= 0:
        at = f' at sample {int(least.argmin())}' if len(flat) > 1 else ''
        raise EstimationError(
            f'{what} is not positive definite{at} (smallest eigenvalue {least.min():.3g}). '
            'Every direction needs a noise above zero; leave a sensor out rather than give it none.'
        )


@dataclass(frozen=True)
class ProcessNoise:
    """How fast force and moments may change: standard deviation after one second of random walk, by the square root of time."""

    force: float | None = None
    """N/s^(1/2); by default 1.5 per kg."""
    moment: float | None = None
    """N m/s^(1/2); by default 0.1 per kg."""
    external_force: float = 20.0
    """N/s^(1/2)."""
    external_moment: float = 5.0
    """N m/s^(1/2)."""
    switch_factor: float = 50.0
    """Variances are multiplied by this near a contact switch."""
    switch_width: float = 0.02
    """What near means, in s before and after."""

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if number is not None and not (np.isfinite(number) and number > 0):
                raise EstimationError(f'Process noise {name} = {number}: a finite number above zero is needed.')


@value
class Problem:
    """Everything the solver needs, as arrays on one time line of n + 1 stages."""

    layout: StateLayout = static()
    loss: Loss = static()
    time: jax.Array
    """Seconds; shape (n+1,)."""
    mass: jax.Array
    """Nominal mass, kg."""
    gravity: jax.Array
    """m/s^2; shape (3,)."""
    entries: jax.Array
    """Entries of A; shape (n, 12)."""
    offsets: jax.Array
    """b; shape (n, nx)."""
    noise_information: jax.Array
    """Diagonal of Q^-1; shape (n, nw)."""
    values: dict[str, jax.Array]
    """Measured values by block; shape (n+1, d)."""
    information: dict[str, jax.Array]
    """R^-1 by block, zero where there is no sample; shape (n+1, d, d)."""
    anchor: jax.Array
    """Point of the moments; shape (n+1, 3)."""
    prior_mean: jax.Array
    """Shape (nx,)."""
    prior_information: jax.Array
    """Shape (nx, nx)."""
    guess: jax.Array
    """Where the sensors are linearised first, read off the data; shape (n+1, nx)."""


def process_information(
    layout: StateLayout, noise: ProcessNoise, mass: float, time: np.ndarray, switches: Sequence[float] = ()
) -> np.ndarray:
    """Return the diagonals of Q^-1, Q = dt q^2, larger near contact switches (times in s); shape (n, nw)."""
    force = noise.force if noise.force is not None else 1.5 * mass
    moment = noise.moment if noise.moment is not None else 0.1 * mass
    density = [force] * 3 + [moment] * 3
    if layout.external_wrench:
        density += [noise.external_force] * 3 + [noise.external_moment] * 3
    q = np.diff(time)[:, None] * np.square(density)
    if len(switches):
        at = np.asarray(switches, float)
        near = (time[:-1, None] <= at + noise.switch_width) & (time[1:, None] >= at - noise.switch_width)
        q[near.any(axis=1)] *= noise.switch_factor
    return 1 / q


def prior_of(layout: StateLayout, mass: float, known: Mapping[str, Any], given: Mapping[str, Any] | None) -> tuple:
    """Return mean (nx,) and covariance (nx, nx) of the first state.

    ``known`` are first guesses of parts from the data; ``given`` are (mean, standard deviation) by part, which win.
    """
    weight = 9.81 * mass
    broad = {
        'center_of_mass': (0.0, 0.2), 'linear_momentum': (0.0, 0.7 * mass), 'angular_momentum': (0.0, 0.1 * mass),
        'force': ((0.0, 0.0, weight), 0.5 * weight), 'moment': (0.0, 0.6 * mass), 'external_force': (0.0, 0.3 * weight),
        'external_moment': (0.0, 0.6 * mass), 'com_offset': (0.0, 0.03), 'bias_force': (0.0, 0.05 * weight),
        'bias_moment': (0.0, 0.1 * mass), 'mass_ratio': (1.0, 0.1),
    }  # fmt: skip
    given = dict(given or {})
    for part in given:
        layout[part]  # names an unknown part
    if 'center_of_mass' not in given and 'center_of_mass' not in known:
        raise EstimationError(
            'Nothing measures the center of mass, so it needs a prior: prior={"center_of_mass": (mean, standard deviation)} in m.'
        )
    mean, deviation = np.zeros(layout.size), np.ones(layout.size)
    for part, where in layout.slices.items():
        start, spread = given.get(part, (known.get(part, broad[part][0]), broad[part][1]))
        if not (np.isfinite(start).all() and np.isfinite(spread).all() and np.all(np.asarray(spread) > 0)):
            raise EstimationError(f'Prior of {part}: a finite mean and a standard deviation above zero are needed.')
        mean[where], deviation[where] = start, spread
    return mean, np.diag(deviation**2)


def _fill_pauses(time: np.ndarray, measurements: Sequence[Measurement]) -> np.ndarray:
    """Put empty stages where nothing was measured for long: over one long step a force may do more than change evenly."""
    usual = min(((m.time[-1] - m.time[0]) / (len(m.time) - 1) for m in measurements if len(m.time) > 1), default=np.inf)
    pieces = [time]
    for k in np.flatnonzero(np.diff(time) > 2.5 * usual):
        pieces.append(np.linspace(time[k], time[k + 1], int(np.ceil((time[k + 1] - time[k]) / usual)) + 1)[1:-1])
    return np.sort(np.concatenate(pieces))


def assemble(
    measurements: Sequence[Measurement],
    *,
    mass: float,
    gravity: Sequence[float] = GRAVITY,
    noise: ProcessNoise | None = None,
    switches: Sequence[float] = (),
    prior: Mapping[str, Any] | None = None,
    layout: StateLayout | None = None,
    loss: Loss | None = None,
    merge: float = 1e-6,
) -> Problem:
    """Put measurements of any rates on the union of their stamps; stamps closer than ``merge`` seconds become one stage.

    Pauses of all sensors are filled with empty stages.

    Args:
        measurements: any subset of `BLOCKS`.
        mass: of the whole robot, kg; the nominal one where the mass is estimated.
        gravity: m/s^2 in world axes.
        noise: of the process.
        switches: times of contact changes, s: near them, the process noise is larger.
        prior: (mean, standard deviation) by part of the state, for the first sample; the rest is read off the data, broadly.
        layout: which states are estimated beside the centroidal ones.
        loss: how outliers are treated.
        merge: s.
    """
    layout, noise, loss = layout or StateLayout(), noise or ProcessNoise(), loss or Loss()
    if not (np.isfinite(mass) and mass > 0):
        raise EstimationError(f'A mass of {mass} kg: the mass of the whole robot must be above zero.')
    if not measurements:
        raise EstimationError('The recording is empty: no measurement was given. At least one with two samples is needed.')
    stamps = np.sort(np.concatenate([m.time for m in measurements]))
    time = _fill_pauses(stamps[np.concatenate([[True], np.diff(stamps) > merge])], measurements)
    if len(time) < 2:
        raise EstimationError('The recording has only one instant; at least two are needed to speak of motion.')
    values: dict[str, np.ndarray] = {}
    information: dict[str, np.ndarray] = {}
    anchor = np.zeros((len(time), 3))
    for m in measurements:
        d = BLOCKS[m.block]
        # Stamps that follow each other within `merge` share the stage that begins with the first of them.
        at = np.searchsorted(time, m.time, side='right') - 1
        if m.block in values:
            raise EstimationError(f'{m.block} was given twice. Combine the two (weighted by their information) first.')
        if len(np.unique(at)) < len(at):
            raise EstimationError(f'{m.block}: samples lie closer than {merge:g} s; lower merge=, or thin them out.')
        values[m.block], information[m.block] = np.zeros((len(time), d)), np.zeros((len(time), d, d))
        values[m.block][at] = m.values
        information[m.block][at] = np.linalg.inv(m.covariance)
        if m.block == 'contact_wrench':
            anchor[at] = m.anchor
    sampled = {m.block: m for m in measurements}
    known = {b: m.values[0] for b, m in sampled.items() if b in layout}
    if 'contact_wrench' in sampled:
        known['force'] = sampled['contact_wrench'].values[0, :3]
    mean, covariance = prior_of(layout, mass, known, prior)
    guess = np.tile(mean, (len(time), 1))
    for block, part in [(b, b) for b in sampled if b in layout] + [('contact_wrench', 'force')]:
        if block in sampled:
            m = sampled[block]
            columns = range(layout[part].start, layout[part].stop)
            guess[:, columns] = np.stack([np.interp(time, m.time, m.values[:, i]) for i in range(3)], axis=1)
    entries, offsets = dynamics(layout, jnp.asarray(np.diff(time)), jnp.asarray(float(mass)), jnp.asarray(gravity, float))
    return Problem(
        layout=layout,
        loss=loss,
        time=jnp.asarray(time),
        mass=jnp.asarray(float(mass)),
        gravity=jnp.asarray(gravity, float),
        entries=entries,
        offsets=offsets,
        noise_information=jnp.asarray(process_information(layout, noise, mass, time, switches)),
        values={b: jnp.asarray(v) for b, v in values.items()},
        information={b: jnp.asarray(v) for b, v in information.items()},
        anchor=jnp.asarray(anchor),
        prior_mean=jnp.asarray(mean),
        prior_information=jnp.asarray(np.linalg.inv(covariance)),
        guess=jnp.asarray(guess),
    )
