# SPDX-License-Identifier: Apache-2.0
"""A solution in words and physical units: from what the solver gives to a `Fit`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from multibody_estimation.identification.binding import Binding, with_values
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.problem import Problem
from multibody_estimation.least_squares import Information, Solution

__all__ = ['blind_sentences', 'summarise']


def summarise(
    problem: Problem, last: Solution, info: Information, count: int, settings: dict, correction: Any, seconds: float
) -> Fit:
    """Put a solution into words and physical units."""
    binding, grid, form = problem.binding, problem.grid, problem.form
    z, p = np.asarray(last.parameters), len(binding.parameters)
    values, slopes = binding.values(z), binding.slopes(z)
    with np.errstate(invalid='ignore'):
        covariance = info.covariance * np.outer(slopes, slopes) if form.free else np.zeros((p, p))
    data = problem.data(settings['weight'], correction=correction)
    ratio, rows = {}, 0
    for samples, residual in zip(grid.samples, form.readings(last.states, z, data)):
        r, seen = np.asarray(residual), samples.weight > 0
        seen = seen if r.shape[1] == len(grid) else seen[:, 1:-1] & (grid.linked > 0)
        ratio[samples.sensor.signal] = float(np.sqrt(np.mean(r[seen] ** 2))) if seen.any() else float('nan')
        rows += int(seen.sum())
    excess = max(1.0, float(last.cost) / max(rows - p, 1))
    used = grid.count
    all_parameters = (*binding.parameters, *(q for q in binding.given.parameters if q.name not in binding.names))
    robot = with_values(replace(binding.given, parameters=all_parameters), dict(zip(binding.names, values)))
    # Placeholders of fixed parameters are set in the model already.
    robot = replace(robot, parameters=tuple(q for q in robot.parameters if q.name in binding.names))
    return Fit(
        robot=robot, names=binding.names, titles=tuple(q.title for q in binding.parameters),
        units=tuple(q.unit for q in binding.parameters), values=values, covariance=covariance * excess,
        held=tuple(int(k) for k in last.held) if form.free else (2,) * p, blind=blind_sentences(binding, info.blind),
        converged=last.converged, sentence=last.sentence, iterations=count, cost=float(last.cost), settings=settings,
        noise_ratio=ratio, truth=dict(problem.windows[0].truth), positions=np.asarray(last.states)[:, :used], time=grid.time[:used],
        starts=grid.starts, external=np.asarray(form.forces(last.states, z, data)[0])[:, : used - 2] * grid.linked[: used - 2],
        seconds=seconds, problem=problem, solution=last, correction=correction,
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
