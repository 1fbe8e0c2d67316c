# SPDX-License-Identifier: Apache-2.0
"""Roll a fitted model forward and compare with what was measured: one stretch, or many short windows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.identify import track
from multibody_estimation.identification.robot import Robot
from multibody_estimation.window import Window

__all__ = ['Prediction', 'WindowErrors', 'predict', 'predict_windows']

STARTS = ('smoothed', 'causal')
CONTEXT = 0.5
"""Seconds before a window from which its causal start is estimated, at most."""
LEAST = 0.2
"""Seconds that must be there before the first window with a causal start."""


@dataclass(frozen=True)
class Prediction:
    """A simulated stretch of a recording."""

    time: np.ndarray
    """Seconds on the recording's own clock, (n,)."""
    positions: np.ndarray
    """(nq, n), rad or m."""
    speeds: np.ndarray
    error: dict
    """Root mean square of prediction minus reading for each joint that an encoder reads."""

    def __str__(self) -> str:
        told = ', '.join(f'{joint} {1e3 * e:.2f} m(rad)' for joint, e in self.error.items())
        return f'Predicted {self.time[-1] - self.time[0]:.2f} s: off by {told} (rms).'


@dataclass(frozen=True)
class WindowErrors:
    """Errors of many short predictions."""

    seconds: float
    starts: str
    """``smoothed``: the state at a window's start comes from all data (the window's own too); ``causal``: from data before it only."""
    count: int
    error: dict
    """Root mean square over all windows for each joint that an encoder reads (rad or m)."""
    each: dict
    """The same for each window, (count,)."""

    def __str__(self) -> str:
        told = ', '.join(f'{joint} {1e3 * e:.2f} m(rad)' for joint, e in self.error.items())
        return f'{self.count} windows of {self.seconds:g} s, {self.starts} starts: off by {told} (rms).'


def _tracked(fit: Fit | Robot, windows: Sequence[Window], weight: float | None, problem: Any = None) -> tuple[Any, Any, Any]:
    """States, scaled parameters and input forces at all stages; (nq, n) each."""
    whole = track(fit, windows, weight=weight, problem=problem)
    problem = whole.problem
    z = np.asarray(whole.solution.parameters)
    inner = np.asarray(problem.form.input_forces(z, problem.recorded))
    return whole, z, np.concatenate([inner[:, :1], inner, inner[:, -1:]], axis=1)


def predict(fit: Fit | Robot, window: Window, *, start: float = 0.0, seconds: float | None = None, weight: float | None = None) -> Prediction:  # fmt: skip
    """Simulate from second ``start`` with the fitted model, from the state that the data before and around it give."""
    whole, z, force = _tracked(fit, [window], weight)
    problem, grid = whole.problem, whole.problem.grid
    own = grid.time[: grid.count] - grid.shift[0]
    k = int(np.searchsorted(own, start - 1e-9))
    end = len(own) if seconds is None else min(int(np.searchsorted(own, start + seconds - 1e-9)), len(own))
    if not 0 <= k < end - 1:
        raise EstimationError(f'Nothing to predict from {start} s; the recording has {own[-1]:.3f} s.')
    speeds = np.gradient(whole.positions, grid.step, axis=1, edge_order=2)
    u = jnp.asarray(force[:, k:end].T[:, :, None])
    x, v = problem.form.rollout(whole.positions[:, k : k + 1], speeds[:, k : k + 1], u, z, grid.step)
    positions, speeds = np.asarray(x)[:, :, 0].T, np.asarray(v)[:, :, 0].T
    error = {
        joint: float(np.sqrt(np.nanmean(r**2)))
        for joint, r in _against(whole, positions[:, None], np.arange(k, end)[None]).items()
    }
    return Prediction(own[k:end], positions, speeds, error)


def _against(whole: Fit, positions: np.ndarray, stages: np.ndarray) -> dict:
    """Prediction (nq, m, w) less reading at the stages (m, w) for each joint that an encoder reads; nan where nothing was read."""
    problem = whole.problem
    names = dynamics.joint_names(whole.robot.model)
    numbers = problem.binding.apply(np.asarray(whole.values))[2]
    out = {}
    for samples, values in zip(problem.grid.samples, numbers):
        for row, joint in enumerate(samples.index):
            r = positions[joint] + float(values['offset'][row]) - samples.values[row, stages]
            if samples.turns[row]:
                r = r - 2 * np.pi * np.round(r / (2 * np.pi))
            out[names[joint]] = np.where(samples.weight[row, stages] > 0, r, np.nan)
    return out


def predict_windows(
    fit: Fit | Robot,
    window: Window | Sequence[Window],
    *,
    seconds: float = 0.2,
    starts: str = 'causal',
    weight: float | None = None,
    context: float = CONTEXT,
) -> WindowErrors:
    """Cut recordings into windows one after another, predict each from the state at its start, compare with the readings.

    starts: where that state comes from, see `WindowErrors`. A claim about a prediction error means nothing without it. weight: of the
    tracking that gives the states; default the fit's own.
    """
    if starts not in STARTS:
        raise EstimationError(f"starts is '{starts}'.{did_you_mean(starts, STARTS)}")
    windows = (window,) if isinstance(window, Window) else tuple(window)
    whole, z, force = _tracked(fit, windows, weight)
    form, grid = whole.problem.form, whole.problem.grid
    h = grid.step
    length, before = int(round(seconds / h)), int(round(context / h))
    begins = [
        s for a, b in zip(grid.starts[:-1], grid.starts[1:]) for s in range(a + 2, b - length + 1, length)
        if starts == 'smoothed' or s - a >= min(LEAST / h, before)
    ]  # fmt: skip
    if not begins or length < 2:
        raise EstimationError(f'No window of {seconds:g} s fits the recordings.')
    at = np.array(begins)
    if starts == 'smoothed':
        x, v = whole.positions[:, at], (whole.positions[:, at + 1] - whole.positions[:, at - 1]) / (2 * h)
        lead = 0
    else:
        x, v = _causal(fit, whole, windows, at, before, weight)
        lead = 1  # the last stage before the window
    stages = at[:, None] - lead + np.arange(length + lead)
    u = jnp.asarray(np.moveaxis(force[:, stages], 2, 0))  # (w, nq, m)
    predicted = np.moveaxis(np.asarray(form.rollout(x, v, u, z, h)[0]), 0, 2)[:, :, lead:]
    errors = _against(whole, predicted, stages[:, lead:])
    total = {j: float(np.sqrt(np.nanmean(r**2))) for j, r in errors.items()}
    return WindowErrors(seconds, starts, len(at), total, {j: np.sqrt(np.nanmean(r**2, axis=1)) for j, r in errors.items()})


def _causal(fit, whole: Fit, windows, at: np.ndarray, before: int, weight) -> tuple[np.ndarray, np.ndarray]:
    """Position and speed (nq, m) at the last stage before each window from the stretch of ``before`` stages that ends there."""
    grid, first = whole.problem.grid, whole.robot.sensors[0].signal
    cuts = []
    for s in at:
        r = int(np.searchsorted(grid.starts, s, side='right')) - 1
        lo, hi = grid.time[[max(s - before, grid.starts[r]), s - 1]] - grid.shift[r] + np.array([-0.5, 0.5]) * grid.step
        cuts.append(_cut(windows[r], lo, hi, first))
    short = track(fit, cuts, weight=weight, step=grid.step)
    ends = np.array(short.starts[1:]) - 1
    q = short.positions
    return q[:, ends], (3 * q[:, ends] - 4 * q[:, ends - 1] + q[:, ends - 2]) / (2 * grid.step)


def _cut(window: Window, begin: float, end: float, first: str) -> Window:
    """What was known before ``end``: readings from ``begin`` on, commands from a little earlier (they act late)."""
    kept = {}
    for name, signal in window.signals.items():
        t = window.seconds(name)
        kept[name] = signal.take((t >= (begin if name == first else begin - 0.1)) & (t < end))
    return replace(window, signals=MappingProxyType(kept))
