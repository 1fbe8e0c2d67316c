# SPDX-License-Identifier: Apache-2.0
"""`identify` and `track`: from a recording to parameters and states."""

import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.signal import savgol_filter

from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.binding import Binding, bind
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.grid import Grid, make_grid
from multibody_estimation.identification.joint_space import JointSpace
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.parameters import Parameter, select
from multibody_estimation.identification.robot import Robot
from multibody_estimation.least_squares import parameter_information, solve
from multibody_estimation.window import Window

__all__ = ['identify', 'prepare', 'track']

WEIGHT = 1e-3
"""Allowed acceleration error (rad/s^2) for a model without error."""


def first_positions(grid: Grid, nq: int) -> np.ndarray:
    """Smoothed encoder readings at every stage, (nq, n); zero for joints that no encoder reads."""
    q = np.zeros((nq, len(grid)))
    for samples in grid.samples:
        if not isinstance(samples.sensor, Encoder):
            continue
        for row, joint in enumerate(samples.index):
            for a, b in zip(grid.starts[:-1], grid.starts[1:]):
                seen = samples.weight[row, a:b] > 0
                y = samples.values[row, a:b][seen]
                y = np.unwrap(y) if samples.sensor.wrap else y
                width = min(21, len(y) - 1 + len(y) % 2)
                if width >= 5:
                    y = savgol_filter(y, width, 3)
                q[joint, a:b] = np.interp(np.arange(b - a), np.flatnonzero(seen), y)
    return q


def prepare(robot: Robot, windows: Sequence[Window], parameters: tuple[Parameter, ...], step: float | None) -> JointSpace:
    """Bind the parameters and lay the recordings on the grid; the result can be solved many times."""
    binding: Binding = bind(robot, parameters)
    return JointSpace(binding, make_grid(binding.robot, windows, step))


def identify(
    robot: Robot,
    window: Window | Sequence[Window],
    parameters: Iterable[Parameter] | None = None,
    *,
    weight: float | None = None,
    step: float | None = None,
    fix: Iterable[str] = (),
    start: Mapping[str, float] | None = None,
    correction: bool = True,
    max_iterations: int = 60,
    tolerance: float = 1e-4,
    progress: Callable[[int, float, float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    problem: JointSpace | None = None,
) -> Fit:
    """Estimate the parameters of a robot and its motion from one or several recordings.

    weight: allowed acceleration error in rad/s^2 (m/s^2 for sliders), the one weight between dynamics and observations.
    step: seconds between states; default: the sample time of the first sensor. May be finer.
    fix, start: parameters to hold, and other first guesses, by name.
    correction: take out the discretisation error by deferred correction.
    progress(iteration, cost, step) is called after every accepted step, cancelled() before each.
    problem: the result of `prepare` for the same robot, recordings and parameters, to spare its compilation.
    """
    windows = [window] if isinstance(window, Window) else list(window)
    chosen = select(robot.parameters if parameters is None else parameters, fix=fix, start=start)
    weight = float(robot.settings.get('weight', WEIGHT) if weight is None else weight)
    if not weight > 0:
        raise EstimationError(f'weight {weight} must be above zero (rad/s^2).')
    step = robot.settings.get('step') if step is None else step
    problem = problem or prepare(robot, windows, chosen, step)
    binding, grid = problem.binding, problem.grid
    if not binding.parameters:
        raise EstimationError('No parameter is free: nothing to identify. Use track for states with known parameters.')
    began = clock.perf_counter()
    z0 = binding.scaled(np.array([p.start for p in binding.parameters], dtype=float))
    lower, upper = binding.bounds()
    nq = len(dynamics.joint_names(robot.model))
    q = first_positions(grid, nq)
    M = np.asarray(problem.forces(q, z0)[1])  # type: ignore[attr-defined]
    reference = np.maximum(np.abs(np.einsum('iik->ik', M)).mean(axis=1), 1e-12)
    limits: dict[str, Any] = {'lower': lower, 'upper': upper, 'progress': progress, 'cancelled': cancelled}
    count, z, fixed_correction = 0, z0, None
    # Accelerations do not change when all forces and inertias grow alike: what they cannot tell at the start, no solve can.
    look = problem.chain._linearise(q, z0, problem.data(1.0, reference, by_mass=True))  # type: ignore[attr-defined]
    seen = parameter_information(look, problem.metric, np.zeros(len(z0), dtype=int), blind_below=1e-13)  # type: ignore[attr-defined]
    # Starts may have an impossible mass matrix, whose inverse says nothing.
    if not np.linalg.eigvalsh(np.moveaxis(M, -1, 0)).min() > 1e-2 * reference.min():
        seen = replace(seen, blind=())
    K = sum((np.outer(d, d) for d in seen.blind), np.zeros((len(z0), len(z0)))) * 1e6 * max(1.0, float(np.diag(seen.S).max()))
    pin = (K, z0)
    schedule = [w for w in (1.0, 0.1) if w > 10 * weight]
    # Soft first, so that a start several times off does not drag the motion away from the readings.
    for sigma in schedule:
        loose = solve(problem.chain, q, z, problem.data(sigma, reference, pin=pin), max_iterations=15, damping=1e-3,  # type: ignore[attr-defined]
                      tolerance=1.0, **limits)  # fmt: skip
        count, q, z = count + loose.iterations, loose.states, loose.parameters
    last = solve(problem.chain, q, z, problem.data(weight, reference, pin=pin), max_iterations=max_iterations,  # type: ignore[attr-defined]
                 tolerance=max(tolerance, 1e-2), **limits)  # fmt: skip
    count += last.iterations
    shift = 0.0
    for _ in range(2 if correction else 1):
        if correction:
            fixed_correction = problem.defect(last.states, last.parameters)  # type: ignore[attr-defined]
        data = problem.data(weight, reference, by_mass=True, correction=fixed_correction, pin=pin)
        before = last.parameters
        last = solve(problem.chain, last.states, last.parameters, data, max_iterations=max_iterations,  # type: ignore[attr-defined]
                     damping=1e-9, tolerance=tolerance, **limits)  # fmt: skip
        count += last.iterations
        P = last.arrow.P.at[: len(z0), : len(z0)].add(-K)
        arrow = replace(last.arrow, P=P)
        info = parameter_information(arrow, problem.metric, last.held)  # type: ignore[attr-defined]
        if len(info.blind) < len(seen.blind):
            info = replace(info, blind=seen.blind, covariance=hide(info.covariance, seen))
        sd = np.sqrt(np.diag(info.covariance))
        good = np.isfinite(sd) & (sd > 0)
        shift = float(np.abs((last.parameters - before)[good] / sd[good]).max(initial=0.0))
        if shift < 0.3 or not last.converged:
            break
    settings = {'form': 'joint_space', 'weight': weight, 'step': grid.step, 'correction': correction, 'correction_shift': shift}
    return summarise(problem, last, info, count, settings, windows, clock.perf_counter() - began)


def hide(covariance: np.ndarray, seen: Any) -> np.ndarray:
    """Covariance with infinite variances where the look before the solve found the data blind."""
    unknown = np.isinf(np.diag(seen.covariance))
    out = np.where(np.outer(unknown, unknown), 0.0, covariance)
    out[unknown, unknown] = np.inf
    return out


def summarise(
    problem: JointSpace, last: Any, info: Any, count: int, settings: dict, windows: Sequence[Window], seconds: float
) -> Fit:
    """Put a solution into words and physical units."""
    binding, grid = problem.binding, problem.grid
    slopes = binding.slopes(last.parameters)
    with np.errstate(invalid='ignore'):
        covariance = info.covariance * np.outer(slopes, slopes)
    values = binding.values(np.asarray(last.parameters))
    ratio, rows = {}, 0
    model, _, numbers = binding.apply(values)
    q = np.asarray(last.states)
    for samples, own in zip(grid.samples, numbers):
        if isinstance(samples.sensor, Encoder):
            r = q[list(samples.index)] + np.array(own['offset'], dtype=float)[:, None] - samples.values
            if samples.sensor.wrap:
                r = r - 2 * np.pi * np.round(r / (2 * np.pi))
            seen = samples.weight > 0
            ratio[samples.sensor.signal] = float(np.sqrt(np.mean((r * samples.weight)[seen] ** 2)))
            rows += int(seen.sum())
    excess = max(1.0, float(last.cost) / max(rows - len(values), 1))
    fixed = tuple(replace(p.with_start(v), fixed=True) for p, v in zip(binding.parameters, values))
    force = np.asarray(problem.forces(q, last.parameters)[0])  # type: ignore[attr-defined]
    return Fit(
        robot=bind(binding.robot, fixed).robot, names=binding.names, titles=tuple(p.title for p in binding.parameters),
        units=tuple(p.unit for p in binding.parameters), values=values, covariance=covariance * excess,
        held=tuple(int(k) for k in last.held), blind=blind_sentences(binding, info.blind), converged=last.converged,
        sentence=last.sentence, iterations=count, cost=float(last.cost), settings=settings, noise_ratio=ratio,
        truth=dict(windows[0].truth), positions=q, time=grid.time, external=force, seconds=seconds,
    )  # fmt: skip


def blind_sentences(binding: Binding, directions: Iterable[np.ndarray]) -> tuple[str, ...]:
    """What the data cannot tell, in words."""
    out = []
    for d in directions:
        parts = [i for i in np.argsort(-np.abs(d)) if abs(d[i]) > 0.05 * np.abs(d).max()]
        titles = [binding.parameters[i].title for i in parts]
        if len(titles) == 1:
            out.append(f'{titles[0]}: nothing in the recording depends on it. Fix it, or excite the robot.')
        elif len(titles) == 2:
            together = 'ratio' if d[parts[0]] * d[parts[1]] > 0 else 'sum'
            out.append(f'{titles[0]} and {titles[1]}, only their {together}. Fix one of them.')
        else:
            out.append(f'{", ".join(titles[:-1])} and {titles[-1]}, only combinations of them. Fix one of them.')
    return tuple(out)


def track(fit: Fit | Robot, window: Window | Sequence[Window], *, weight: float | None = None, step: float | None = None) -> Fit:
    """Estimate the motion and the unexplained joint forces with all parameters known."""
    robot = fit.robot if isinstance(fit, Fit) else fit
    settings = fit.settings if isinstance(fit, Fit) else robot.settings
    windows = [window] if isinstance(window, Window) else list(window)
    weight = float(weight or settings.get('weight', WEIGHT))
    problem = prepare(robot, windows, (), step or settings.get('step'))
    none = np.zeros(0)
    began = clock.perf_counter()
    q = first_positions(problem.grid, problem.nq)  # type: ignore[attr-defined]
    data = problem.data(weight, np.ones(problem.nq), by_mass=True)  # type: ignore[attr-defined]
    last = solve(problem.chain, q, none, data, lower=none, upper=none, damping=1e-6)  # type: ignore[attr-defined]
    info = parameter_information(last.arrow, problem.metric, last.held)  # type: ignore[attr-defined]
    chosen = {'form': 'joint_space', 'weight': weight, 'step': problem.grid.step}
    return summarise(problem, last, info, last.iterations, chosen, windows, clock.perf_counter() - began)
