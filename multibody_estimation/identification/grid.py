# SPDX-License-Identifier: Apache-2.0
"""Recordings on the solver's time grid: samples at stages, held inputs as exact means, gaps and seams as zero weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.observations import Encoder, Observation
from multibody_estimation.identification.robot import Robot
from multibody_estimation.window import Window

__all__ = ['Grid', 'InputTable', 'input_means', 'make_grid']


@dataclass(frozen=True)
class Samples:
    """One sensor on the grid."""

    sensor: Observation
    index: tuple[int, ...]
    """Position of each read joint in q (encoders)."""
    values: np.ndarray
    """(k, n); zero where nothing was measured."""
    weight: np.ndarray
    """1 / noise where measured, 0 elsewhere; (k, n)."""
    lag: np.ndarray
    """Seconds from the stage to the moment that the sample describes, (n,)."""


@dataclass(frozen=True)
class InputTable:
    """Knots of a held input and its first two integrals, over all recordings on one running time axis."""

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
    """First stage of each recording, and n at the end."""
    linked: np.ndarray
    """1 where a window of three stages lies in one recording, 0 across a seam; (n - 2,)."""
    samples: tuple[Samples, ...]
    inputs: tuple[InputTable, ...]
    shift: tuple[float, ...]
    """Running time minus the recording's own, one per recording."""

    def __len__(self) -> int:
        return len(self.time)


def make_grid(robot: Robot, windows: Sequence[Window], step: float | None = None) -> Grid:
    """Lay recordings on a common grid; errors name the signal, the column and the index."""
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
        seconds = window.seconds(first)
        if len(seconds) < 5:
            raise EstimationError(f'{first}: {len(seconds)} samples are too few to tell a motion; at least 5 are needed.')
        count = int(round((seconds[-1] - seconds[0]) / step)) + 1
        shift.append(clock - seconds[0])
        time.append(clock + step * np.arange(count))
        starts.append(starts[-1] + count)
        clock += step * count + 1.0
    t = np.concatenate(time)
    n = len(t)
    linked = np.ones(n - 2)
    for s in starts[1:-1]:
        linked[[s - 2, s - 1]] = 0
    samples = tuple(_place(robot, sensor, windows, t, starts, shift, step, joints) for sensor in robot.sensors)
    tables = tuple(_table(source, windows, shift, joints) for source in robot.inputs)
    return Grid(step, t, tuple(starts), linked, samples, tables, tuple(shift))


def _columns(signal: Any, wanted: Sequence[str]) -> list[int]:
    if not wanted:
        return list(range(signal.values.shape[1]))
    if all(name in signal.columns for name in wanted):
        return [signal.columns.index(name) for name in wanted]
    if signal.values.shape[1] == len(wanted) and not any(name in signal.columns for name in wanted):
        return list(range(len(wanted)))
    missing = next(name for name in wanted if name not in signal.columns)
    raise EstimationError(f"{signal.name}: no column '{missing}'; it has {', '.join(signal.columns)}.")


def _place(robot, sensor, windows, t, starts, shift, step, joints) -> Samples:
    n, values, weight, lag = len(t), None, None, np.zeros(len(t))
    index = tuple(joints.index(j) for j in sensor.joints) if isinstance(sensor, Encoder) else ()
    moved = np.zeros(1)
    for r, window in enumerate(windows):
        signal = window[sensor.signal]
        columns = _columns(signal, sensor.columns)
        k = len(columns)
        if values is None:
            values, weight, moved = np.zeros((k, n)), np.zeros((k, n)), np.zeros(k)
        noise = np.zeros(k) + np.asarray(sensor.noise, dtype=float)
        if not (noise > 0).all() and signal.noise:
            noise = np.asarray(signal.noise)[columns]
        if isinstance(sensor, Encoder) and sensor.quantisation:
            noise = np.hypot(noise, sensor.quantisation / np.sqrt(12))
        if not (noise > 0).all():
            raise EstimationError(
                f'{sensor.signal}: its noise is unknown. Give the sensor noise=..., in {signal.unit or "its unit"}.'
            )
        bad = np.argwhere(~np.isfinite(signal.values[:, columns]))
        if len(bad):
            i, c = bad[0]
            raise EstimationError(f'{sensor.signal}: sample {i} is not a number in column {signal.columns[columns[c]]}.')
        own = window.seconds(sensor.signal) + shift[r]
        back = np.flatnonzero(np.diff(own) <= 0)
        if len(back):
            raise EstimationError(f'{sensor.signal}: time does not run forward at sample {back[0] + 1}.')
        at = np.clip(np.round((own - t[starts[r]]) / step).astype(int), 0, starts[r + 1] - starts[r] - 1) + starts[r]
        values[:, at] = signal.values[:, columns].T
        weight[:, at] = 1 / noise[:, None]
        lag[at] = own - sensor.delay - t[at]
        moved = np.maximum(moved, np.ptp(signal.values[:, columns], axis=0) / noise)
    if isinstance(sensor, Encoder) and (moved < 6).all():
        raise EstimationError(
            f'{sensor.signal}: the recording holds {" and ".join(sensor.joints)} still (moves less than 6 standard deviations '
            'of its noise); nothing can be told from it. Excite the robot.'
        )
    lag[np.abs(lag) < 1e-3 * step] = 0.0
    return Samples(sensor, index, values, weight, lag)


def _table(source, windows, shift, joints) -> InputTable:
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
        times.append(window.seconds(source.signal) + shift[r])
        values.append(u)
    time, value = np.concatenate(times), np.concatenate(values)
    dt = np.diff(time)
    first = np.concatenate([[0.0], np.cumsum(value[:-1] * dt)])
    second = np.concatenate([[0.0], np.cumsum(first[:-1] * dt + 0.5 * value[:-1] * dt**2)])
    return InputTable(time, value, first, second)


def input_means(table: InputTable, time: Any, step: float, delay: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means of a delayed held input around each time: hat-weighted over (t-h, t+h), plain over (t-h, t) and over (t, t+h).

    A second difference of positions is the hat-weighted mean of the acceleration, so the first mean is what it must be compared
    with: exact for a held input at any delay, and smooth in the delay.
    """
    knots, u = jnp.asarray(table.time), jnp.asarray(table.value)
    first, second = jnp.asarray(table.first), jnp.asarray(table.second)

    def integrals(at):
        i = jnp.clip(jnp.searchsorted(knots, at, side='right') - 1, 0, len(table.time) - 1)
        d = at - knots[i]
        return first[i] + u[i] * d, second[i] + first[i] * d + 0.5 * u[i] * d**2

    (a1, a2), (b1, b2), (c1, c2) = (integrals(time + shift * step - delay) for shift in (-1, 0, 1))
    return (a2 - 2 * b2 + c2) / step**2, (b1 - a1) / step, (c1 - b1) / step
