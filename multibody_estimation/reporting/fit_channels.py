# SPDX-License-Identifier: Apache-2.0
"""What every sensor of a fit measured and should have read, as `Channel` values; and what predictions look like beside it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import Encoder, Fit, Prediction, predict
from multibody_estimation.identification.dynamics import joint_names, turns
from multibody_estimation.reporting.residuals import Channel
from multibody_estimation.window import Window

__all__ = ['Ahead', 'channels_of', 'look_ahead']

DRAWS = 12
"""Models drawn from the posterior for the band of a prediction."""


def channels_of(fit: Fit) -> list[Channel]:
    """One channel per column of each sensor, over the stages in use."""
    problem, last = fit.problem, fit.solution
    grid, form, used = problem.grid, problem.form, problem.grid.count
    z = np.asarray(last.parameters)
    data = problem.data(fit.settings['weight'], correction=fit.correction)
    motion = fit.motion
    out = []
    for samples, residual in zip(grid.samples, form.readings(last.states, z, data)):
        r, sensor = np.asarray(residual), samples.sensor
        if r.shape[1] < len(grid):  # sensors that need accelerations speak of inner stages only
            r = np.pad(r, ((0, 0), (1, len(grid) - 1 - r.shape[1])))
            inner = np.pad(grid.linked, (1, 1))
        else:
            inner = np.ones(len(grid))
        signal = problem.windows[0][sensor.signal]
        columns = sensor.columns if len(sensor.columns) == len(r) else signal.columns
        if isinstance(sensor, Encoder):
            columns = sensor.joints
        for row in range(len(r)):
            weight = samples.weight[row, :used]
            seen = (weight > 0) & (inner[:used] > 0)
            y = np.where(seen, samples.values[row, :used], np.nan)
            white = np.where(seen, r[row, :used], np.nan)
            with np.errstate(divide='ignore', invalid='ignore'):
                estimate = y + np.where(seen, white / weight, 0.0)
            deviation = None
            if isinstance(sensor, Encoder):
                joint = samples.index[row]
                deviation = motion.positions_std[joint]
            noise = float(1 / np.median(weight[seen])) if seen.any() else float('nan')
            unit = signal.unit or (
                ('rad' if turns(fit.robot.model, columns[row]) else 'm') if isinstance(sensor, Encoder) else ''
            )
            name = columns[row] if isinstance(sensor, Encoder) else f'{sensor.signal} {columns[row]}'
            out.append(Channel(name, unit, grid.time[:used], y, estimate, white, noise, deviation, grid.starts[1:-1]))
    return out


@dataclass(frozen=True)
class Ahead:
    """A prediction beside what was read."""

    prediction: Prediction
    measured: np.ndarray
    """Joint positions as the encoders read them, offsets taken off; the estimate where no encoder reads; (nq, n)."""
    read: tuple[str, ...]
    """Joints that an encoder reads."""
    noise: dict[str, float]
    low: np.ndarray | None
    """Prediction less two standard deviations from the parameters' uncertainty, (nq, n)."""
    high: np.ndarray | None
    unseen: bool
    """Whether the fit has not seen these readings."""
    names: tuple[str, ...]


def _drawn(fit: Fit, count: int) -> list[Fit]:
    """The fit with parameters drawn from their posterior, inside the bounds; those that the data do not tell stay."""
    rng = np.random.default_rng(0)
    sd = fit.std
    free = np.flatnonzero(np.isfinite(sd) & (sd > 0))
    if not len(free):
        return []
    C = fit.covariance[np.ix_(free, free)] / np.outer(sd[free], sd[free])
    values, vectors = np.linalg.eigh(np.where(np.isfinite(C), C, 0.0))
    root = vectors * np.sqrt(np.maximum(values, 0))
    bounds = {p.name: (p.lower, p.upper) for p in fit.robot.parameters}
    out = []
    for _ in range(count):
        new = np.array(fit.values, dtype=float)
        new[free] += sd[free] * (root @ rng.normal(size=len(free)))
        limits = [bounds.get(n, (-np.inf, np.inf)) for n in fit.names]
        out.append(replace(fit, values=np.clip(new, [a for a, _ in limits], [b for _, b in limits])))
    return out


def look_ahead(
    fit: Fit, window: Window, *, start: float, seconds: float | None = None, unseen: bool = True, draws: int = DRAWS
) -> Ahead:
    """Predict a stretch of a recording and lay the readings beside it; `EstimationError` where it cannot be simulated."""
    ahead = predict(fit, window, start=start, seconds=seconds)
    if not np.isfinite(ahead.positions).all():
        raise EstimationError('The simulated motion grows without bound: the model is not one of a passive mechanism.')
    names = tuple(joint_names(fit.robot.model))
    measured, noise = ahead.positions.copy(), {}
    samples: dict[str, int] = {}
    for sensor in fit.robot.sensors:
        if not isinstance(sensor, Encoder):
            continue
        signal, own = window[sensor.signal], window.seconds(sensor.signal) - sensor.delay
        offsets = np.zeros(len(sensor.joints)) + np.asarray(sensor.offset or 0.0, dtype=float)
        stated = np.asarray(sensor.noise, dtype=float)
        told = np.zeros(len(sensor.joints)) + (stated if (stated > 0).all() else np.asarray(signal.noise or 0.0, dtype=float))
        count = int(((own >= ahead.time[0]) & (own <= ahead.time[-1])).sum())
        for k, joint in enumerate(sensor.joints):
            if count <= samples.get(joint, 1):  # another encoder tells more of this stretch
                continue
            samples[joint] = count
            column = signal.columns.index(joint) if joint in signal.columns else k
            angle = sensor.angular and turns(fit.robot.model, joint)
            y = (
                np.interp(ahead.time, own, np.unwrap(signal.values[:, column]) if angle else signal.values[:, column])
                - offsets[k]
            )
            if angle:
                y -= 2 * np.pi * np.round((y - ahead.positions[names.index(joint)])[0] / (2 * np.pi))
            measured[names.index(joint)] = y
            noise[joint] = float(np.hypot(told[k], sensor.quantisation / np.sqrt(12))) or float('nan')
    low, high = _band(fit, window, ahead, start, seconds, draws)
    return Ahead(ahead, measured, tuple(noise), noise, low, high, unseen, names)


def _band(fit: Fit, window: Window, ahead: Prediction, start: float, seconds: Any, draws: int) -> tuple[Any, Any]:
    """Two standard deviations of the predictions of models drawn from the posterior, each from its own start."""
    others: Sequence[np.ndarray] = []
    try:
        others = [predict(f, window, start=start, seconds=seconds).positions for f in _drawn(fit, draws)]
    except EstimationError:
        return None, None
    others = [o for o in others if np.isfinite(o).all()]
    if len(others) < 3:
        return None, None
    d = 2 * np.sqrt(np.mean((np.array(others) - ahead.positions) ** 2, axis=0))
    return ahead.positions - d, ahead.positions + d
