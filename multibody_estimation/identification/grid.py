# SPDX-License-Identifier: Apache-2.0
"""Recordings on the solver's time grid: samples at stages, held inputs as tables, gaps and seams as zero weights.

The number of stages and of input knots is rounded up, so that recordings of nearly the same length share one compiled program; the
stages too many carry no weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.observations import Encoder, Observation
from multibody_estimation.identification.robot import Robot
from multibody_estimation.window import Window

__all__ = ['Grid', 'InputTable', 'Samples', 'input_means', 'make_grid', 'round_up']

PAUSE = 1.0
"""Seconds between recordings on the running time axis."""


@dataclass(frozen=True)
class Samples:
    """One sensor on the grid."""

    sensor: Observation
    index: tuple[int, ...]
    """Position of each read joint in q (encoders)."""
    turns: tuple[bool, ...]
    """Which columns are angles, for which a full turn is no difference."""
    values: np.ndarray
    """(k, n); zero where nothing was measured."""
    weight: np.ndarray
    """1 / noise where measured, 0 elsewhere; (k, n)."""
    lag: np.ndarray
    """Seconds from the stage to the moment that the sample describes, (n,)."""


@dataclass(frozen=True)
class InputTable:
    """Knots of a held input and its first two integrals, over all recordings on one running time axis; padded at the end."""

    time: np.ndarray
    value: np.ndarray
    first: np.ndarray
    second: np.ndarray


@dataclass(frozen=True)
class Grid:
    """All recordings of one identification, one after another."""

    step: float
    """Seconds between stages."""
    time: np.ndarray
    """Running time of each stage, (n,); recordings are set apart by a pause."""
    starts: tuple[int, ...]
    """First stage of each recording, and the number of stages in use at the end."""
    linked: np.ndarray
    """1 where a window of three stages lies in one recording, 0 across a seam; (n - 2,)."""
    samples: tuple[Samples, ...]
    inputs: tuple[InputTable, ...]
    shift: tuple[float, ...]
    """Running time minus the recording's own, one per recording."""

    def __len__(self) -> int:
        return len(self.time)

    @property
    def count(self) -> int:
        """Stages in use."""
        return self.starts[-1]


def round_up(count: int) -> int:
    """The next of a coarse set of sizes, at most 6 % larger."""
    grain = max(16, 1 << max(count.bit_length() - 5, 0))
    return -(-count // grain) * grain


def make_grid(robot: Robot, windows: Sequence[Window], step: float | None = None, *, stages: int = 0, knots: int = 0) -> Grid:
    """Lay recordings on a common grid of at least ``stages`` stages; errors name the signal, the column and the index."""
    if not windows:
        raise EstimationError('No recording was given.')
    joints = dynamics.joint_names(robot.model)
    first = robot.sensors[0].signal
    if step is None:
        rates = [window[first].rate for window in windows]
        if not np.isfinite(rates).all():
            raise EstimationError(f'{first}: at least three samples are needed.')
        step = float(round(1 / np.median(rates), 9))
    if not step > 0:
        raise EstimationError(f'The time step {step} s must be above zero.')
    time, starts, shift, clock = [], [0], [], 0.0
    for window in windows:
        if len(window[first]) < 5:
            raise EstimationError(f'{first}: {len(window[first])} samples are too few to tell a motion; at least 5 are needed.')
        read = [window.seconds(s.signal) for s in robot.sensors if isinstance(s, Encoder) and len(window[s.signal])]
        begin, end = min(t[0] for t in read), max(t[-1] for t in read)
        count = int(round((end - begin) / step)) + 1
        shift.append(clock - begin)
        time.append(clock + step * np.arange(count))
        starts.append(starts[-1] + count)
        clock += step * count + PAUSE
    used = starts[-1]
    n = max(round_up(used), stages)
    t = np.concatenate([*time, clock + step * np.arange(n - used)])
    linked = np.zeros(n - 2)
    for a, b in zip(starts[:-1], starts[1:]):
        linked[a : max(b - 2, a)] = 1
    samples = tuple(_place(robot, sensor, windows, t, starts, shift, step, joints) for sensor in robot.sensors)
    _check_moves(samples)
    tables = tuple(_table(source, windows, shift, knots) for source in robot.inputs)
    return Grid(step, t, tuple(starts), linked, samples, tables, tuple(shift))


def _check_moves(samples: Sequence[Samples]) -> None:
    """A robot that stands still tells nothing."""
    joints: list[str] = []
    for s in samples:
        if isinstance(s.sensor, Encoder):
            for y, w in zip(s.values, s.weight):
                if (w > 0).any() and np.ptp(y[w > 0]) * w.max() > 6:
                    return
            joints += s.sensor.joints
    raise EstimationError(
        f'The recording holds {" and ".join(dict.fromkeys(joints))} still (moves less than 6 standard deviations of its noise); '
        'nothing can be told from it. Excite the robot.'
    )


def _columns(signal: Any, wanted: Sequence[str]) -> list[int]:
    if not wanted:
        return list(range(signal.values.shape[1]))
    if all(name in signal.columns for name in wanted):
        return [signal.columns.index(name) for name in wanted]
    if signal.values.shape[1] == len(wanted) and not any(name in signal.columns for name in wanted):
        return list(range(len(wanted)))
    missing = next(name for name in wanted if name not in signal.columns)
    raise EstimationError(f"{signal.name}: no column '{missing}'; it has {', '.join(signal.columns)}.")


def _noise(sensor: Observation, signal: Any, columns: list[int]) -> np.ndarray:
    noise = np.zeros(len(columns)) + np.asarray(sensor.noise, dtype=float)
    if not (noise > 0).all() and signal.noise:
        noise = np.asarray(signal.noise)[columns]
    if isinstance(sensor, Encoder) and sensor.quantisation:
        noise = np.hypot(noise, sensor.quantisation / np.sqrt(12))
    if not (noise > 0).all():
        raise EstimationError(
            f'{sensor.signal}: its noise is unknown. Give the sensor noise=..., in {signal.unit or "its unit"}.'
        )
    return noise


def _check(sensor: Observation, signal: Any, columns: list[int], own: np.ndarray) -> None:
    bad = np.argwhere(~np.isfinite(signal.values[:, columns]))
    if len(bad):
        i, c = bad[0]
        raise EstimationError(f'{sensor.signal}: sample {i} is not a number in column {signal.columns[columns[c]]}.')
    back = np.flatnonzero(np.diff(own) <= 0)
    if len(back):
        raise EstimationError(f'{sensor.signal}: time does not run forward at sample {back[0] + 1}.')


def _place(robot: Robot, sensor: Observation, windows, t, starts, shift, step, joints) -> Samples:
    """Each sample goes to the stage nearest to the moment it describes; several at one stage are averaged."""
    n, lag = len(t), np.zeros(len(t))
    read = sensor.joints if isinstance(sensor, Encoder) else ()
    index = tuple(joints.index(j) for j in read)
    values = weight = np.zeros(0)
    for r, window in enumerate(windows):
        signal = window[sensor.signal]
        columns = _columns(signal, sensor.columns)
        k = len(columns)
        if not values.size:
            values, weight = np.zeros((k, n)), np.zeros((k, n))
        noise = _noise(sensor, signal, columns)
        own = window.seconds(sensor.signal) + shift[r]
        _check(sensor, signal, columns, own)
        moment = own - sensor.delay
        place = np.round((moment - t[starts[r]]) / step).astype(int)
        inside = (place >= 0) & (place < starts[r + 1] - starts[r])
        at, y = place[inside] + starts[r], signal.values[inside][:, columns].T
        head, count = np.unique(at, return_index=True, return_counts=True)[1:]
        here = at[head]
        # Fast sensors: a mean of m samples has 1/sqrt(m) of the noise, and describes the mean of their moments.
        mean = np.add.reduceat(y, head, axis=1) / count if len(head) else np.zeros((k, 0))
        values[:, here] = mean
        weight[:, here] = np.sqrt(count) / noise[:, None]
        lag[here] = (np.add.reduceat(moment[inside], head) / count if len(head) else 0) - t[here]
    lag[np.abs(lag) < 1e-3 * step] = 0.0
    turns = tuple(sensor.angular and dynamics.turns(robot.model, j) for j in read) or (sensor.angular,) * len(values)
    return Samples(sensor, index, turns, values, weight, lag)


def _table(source, windows, shift, knots: int) -> InputTable:
    times, values = [], []
    for r, window in enumerate(windows):
        signal = window[source.signal]
        if not len(signal):
            raise EstimationError(f'{source.signal}: the recording has no sample of this input.')
        wanted = source.column or (source.joint if source.joint in signal.columns else '')
        if not wanted and signal.values.shape[1] > 1:
            raise EstimationError(f'{source.signal}: say which of its columns {", ".join(signal.columns)} drives {source.joint}.')
        u = signal.column(wanted) if wanted else signal.values[:, 0]
        bad = np.flatnonzero(~np.isfinite(u))
        if len(bad):
            raise EstimationError(f'{source.signal}: sample {bad[0]} is not a number.')
        own = window.seconds(source.signal) + shift[r]
        # Before its first sample an input is taken to have been what it then is, whatever the recording before ended with.
        times.append(np.append(own[0] - PAUSE / 2, own))
        values.append(np.append(u[0], u))
    time, value = np.concatenate(times), np.concatenate(values)
    dt = np.diff(time)
    first = np.concatenate([[0.0], np.cumsum(value[:-1] * dt)])
    second = np.concatenate([[0.0], np.cumsum(first[:-1] * dt + 0.5 * value[:-1] * dt**2)])
    spare = max(round_up(len(time)), knots) - len(time)
    return InputTable(
        np.append(time, np.full(spare, 1e30)), *(np.pad(x, (0, spare), mode='edge') for x in (value, first, second))
    )


def input_means(xp: Any, table: Sequence[Any], time: Any, step: Any, delay: Any) -> tuple[Any, Any, Any]:
    """Means of a delayed held input around each time: hat-weighted over (t-h, t+h), plain over (t-h, t) and over (t, t+h).

    A second difference of positions is the hat-weighted mean of the acceleration, so the first mean is what it must be compared
    with: exact for a held input at any delay, and smooth in the delay. ``table``: the four arrays of an `InputTable`; ``xp``: numpy
    or jax.numpy.
    """
    knots, u, first, second = table

    def integrals(at):
        i = xp.clip(xp.searchsorted(knots, at, side='right') - 1, 0, len(knots) - 1)
        d = at - knots[i]
        return first[i] + u[i] * d, second[i] + first[i] * d + 0.5 * u[i] * d**2

    (a1, a2), (b1, b2), (c1, c2) = (integrals(time + shift * step - delay) for shift in (-1, 0, 1))
    return (a2 - 2 * b2 + c2) / step**2, (b1 - a1) / step, (c1 - b1) / step
