# SPDX-License-Identifier: Apache-2.0
"""`identify` and `track`: from a recording to parameters and states."""

import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification.arm_form import suits
from multibody_estimation.identification.evaluation import SYMMETRIC, Evaluation
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.parameters import Parameter, select
from multibody_estimation.identification.problem import Problem, prepare
from multibody_estimation.identification.robot import Robot
from multibody_estimation.identification.summary import summarise
from multibody_estimation.least_squares import Information, Solution, parameter_information, solve
from multibody_estimation.maximal.model import Multibody
from multibody_estimation.window import Window

__all__ = ['identify', 'track']

FORMS = ('joint_space', 'maximal', 'paper')
WEIGHT = 1e-3
"""Allowed acceleration error (rad/s^2) for a model without error."""


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
    evaluation: str | Evaluation | None = None,
    form: str = 'joint_space',
    compliance: float | None = None,
    max_iterations: int = 60,
    tolerance: float = 1e-4,
    progress: Callable[[int, float, float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    problem: Problem | None = None,
) -> Fit:
    """Estimate the parameters of a robot and its motion from one or several recordings.

    weight: allowed acceleration error in rad/s^2 (m/s^2 for sliders), the one weight between dynamics and observations.
    step: seconds between states; default: the sample time of the first sensor. May be finer.
    fix, start: parameters to hold, and other first guesses, by name.
    correction: take out the discretisation error by deferred correction.
    evaluation: ``symmetric``, or the points of a simulator whose own parameters are wanted: ``semi_implicit``, ``mujoco``.
    form: ``joint_space``; ``maximal`` for mechanisms with loops or joints that give (``compliance`` in m/N and rad/(N m)); ``paper`` to
    reproduce the published two-residual form.
    progress(iteration, cost, step) is called after every accepted step, cancelled() before each.
    problem: the result of `prepare`, for these or other recordings, to spare its compilation.
    """
    windows = (window,) if isinstance(window, Window) else tuple(window)
    chosen = select(robot.parameters if parameters is None else parameters, fix=fix, start=start)
    weight = _positive('weight', robot.settings.get('weight', WEIGHT) if weight is None else weight)
    step = robot.settings.get('step') if step is None else step
    evaluation = robot.settings.get('evaluation', SYMMETRIC) if evaluation is None else evaluation
    if form not in FORMS:
        raise EstimationError(f"form is '{form}'.{did_you_mean(form, FORMS)}")
    if form != 'joint_space':
        from multibody_estimation.identification.maximal_identify import identify_maximal

        return identify_maximal(replace(robot, parameters=chosen), windows, form=form, weight=weight, step=step, compliance=compliance,
                                max_iterations=max_iterations, tolerance=tolerance, progress=progress, cancelled=cancelled)  # fmt: skip
    if isinstance(robot.model, Multibody):
        raise EstimationError(f"{robot.name} is a mechanism in maximal coordinates: identify it with form='maximal'.")
    if problem is None and suits(robot):
        from multibody_estimation.identification.arm_identify import identify_arm

        return identify_arm(robot, windows, chosen, step=step, progress=progress, cancelled=cancelled)
    if problem is None:
        problem = prepare(robot, windows, chosen, step, evaluation=evaluation)
    elif windows != problem.windows:
        problem = problem.with_windows(windows)
    if not problem.binding.parameters:
        raise EstimationError('No parameter is free: nothing to identify. Use track for states with known parameters.')
    correction = correction and problem.form.evaluation is SYMMETRIC
    began = clock.perf_counter()
    search = Search(problem, weight, max_iterations, tolerance, progress, cancelled)
    last, info, count, shift, held_correction = search.run(correction)
    settings = {'form': 'joint_space', 'weight': weight, 'step': problem.grid.step, 'correction': bool(correction),
                'correction_shift': shift, 'evaluation': problem.form.evaluation.name}  # fmt: skip
    return summarise(problem, last, info, count, settings, held_correction, clock.perf_counter() - began)


def _positive(name: str, value: Any) -> float:
    if not (np.isfinite(value) and value > 0):
        raise EstimationError(f'{name} {value} must be above zero (rad/s^2).')
    return float(value)


@dataclass(frozen=True)
class Search:
    """The order of the solves: soft and force-whitened first, then stiff, then whitened by mass and corrected."""

    problem: Problem
    weight: float
    max_iterations: int
    tolerance: float
    progress: Callable[[int, float, float], None] | None
    cancelled: Callable[[], bool] | None

    def _solve(self, q: Any, z: np.ndarray, data: dict, **options: Any) -> Solution:
        lower, upper = self.problem.binding.bounds()
        options = {'metric': self.problem.metric} | options
        return solve(self.problem.form.chain, q, z, data, lower=lower, upper=upper, progress=self.progress, cancelled=self.cancelled,
                     **options)  # fmt: skip

    def run(self, correction: bool) -> tuple[Solution, Information, int, float, Any]:
        """Solution, information, iterations, shift by the last correction in standard deviations, the correction."""
        problem, form = self.problem, self.problem.form
        q = problem.start()
        z = z0 = problem.binding.scaled(problem.binding.starts())
        M = np.asarray(form.forces(q, z0, problem.data(1.0))[1])[:, :, : problem.grid.count - 2]
        reference = np.maximum(np.abs(np.einsum('iik->ik', M)).mean(axis=1), 1e-12)
        unseen = self._unseen(q, z0, M, reference)
        K = pin_matrix(unseen, len(z0))
        pin = (K, z0)
        count = 0
        sharp = form.evaluation.sharp
        # Soft first, so that a start several times off does not drag the motion away from the readings.
        for sigma, widen in ((1.0, 30.0), (0.1, 10.0)):
            if sigma > 10 * self.weight:
                data = problem.data(sigma, reference=reference, pin=pin, widen=widen)
                loose = self._solve(q, z, data, max_iterations=15, damping=1e-3, tolerance=1.0)
                count += loose.iterations
                if not loose.converged and sigma == 1.0:
                    # A bad start: regress the parameters on the smoothed readings, whitened by mass, with the states held still.
                    still = self._solve(q, z, data | {'by_mass': jnp.float64(1.0)}, max_iterations=15, damping=1e-3, tolerance=1.0,
                                        metric=self.problem.metric * 1e15)  # fmt: skip
                    again = self._solve(q, still.parameters, data, max_iterations=60, damping=1e-3, tolerance=1.0)
                    count += still.iterations + again.iterations
                    loose = min(loose, again, key=lambda s: s.cost)
                q, z = loose.states, loose.parameters
        for widen in (3.0, 1.0) if sharp else (1.0,):
            data = problem.data(self.weight, reference=reference, pin=pin, widen=widen)
            last = self._solve(q, z, data, max_iterations=self.max_iterations, tolerance=max(self.tolerance, 1e-2))
            count, q, z = count + last.iterations, last.states, last.parameters
        shift, fixed = 0.0, None
        for _ in range(2 if correction else 1):
            fixed = form.defect(last.states, last.parameters, data) if correction else None
            data = problem.data(self.weight, reference=reference, by_mass=True, correction=fixed, pin=pin)
            before = last.parameters
            last = self._solve(
                last.states, before, data, max_iterations=self.max_iterations, damping=1e-9, tolerance=self.tolerance
            )
            count += last.iterations
            info = self._information(last, K, unseen)
            sd = np.sqrt(np.diag(info.covariance))
            good = np.isfinite(sd) & (sd > 0)
            shift = float(np.abs((last.parameters - before)[good] / sd[good]).max(initial=0.0))
            if shift < 0.3 or not last.converged:
                break
        return last, info, count, shift, fixed

    def _unseen(self, q: Any, z0: np.ndarray, M: np.ndarray, reference: np.ndarray) -> Information:
        """Directions that accelerations cannot tell at the start: no solve can (all forces and inertias grown alike, say)."""
        data = self.problem.data(1.0, reference=reference, by_mass=True, widen=30.0)
        look = self.problem.form.chain.normal(q, z0, data)
        seen = parameter_information(look, self.problem.metric, np.zeros(len(z0), dtype=int), blind_below=1e-13)
        # Starts may have an impossible mass matrix, whose inverse says nothing.
        if not np.linalg.eigvalsh(np.moveaxis(M, -1, 0)).min() > 1e-2 * reference.min():
            seen = replace(seen, blind=())
        return seen

    def _information(self, last: Solution, K: np.ndarray, unseen: Information) -> Information:
        """Second-order picture at the solution, without the pins."""
        p = len(K)
        arrow = replace(last.arrow, P=last.arrow.P.at[:p, :p].add(-K))
        info = parameter_information(arrow, self.problem.metric, last.held)
        if len(info.blind) < len(unseen.blind):
            unknown = np.isinf(np.diag(unseen.covariance))
            covariance = np.where(np.outer(unknown, unknown), 0.0, info.covariance)
            covariance[unknown, unknown] = np.inf
            info = replace(info, blind=unseen.blind, covariance=covariance)
        return info


def pin_matrix(unseen: Information, p: int) -> np.ndarray:
    """Information that holds the unseen directions, (p, p)."""
    K = sum((np.outer(d, d) for d in unseen.blind), np.zeros((p, p)))
    return K * 1e6 * max(1.0, float(np.diag(unseen.S).max(initial=0.0)))


def track(
    fit: Fit | Robot,
    window: Window | Sequence[Window],
    *,
    weight: float | None = None,
    step: float | None = None,
    problem: Problem | None = None,
) -> Fit:
    """Estimate the motion and the unexplained joint forces with all parameters known.

    Takes a `Fit`, or a `Robot` whose parameters are to be taken at their starts. problem: the ``problem`` of an earlier result, to
    spare the compilation; the parameters of ``fit`` count.
    """
    settings = fit.settings if isinstance(fit, Fit) else fit.settings
    windows = (window,) if isinstance(window, Window) else tuple(window)
    weight = _positive('weight', settings.get('weight', WEIGHT) if weight is None else weight)
    robot, values = known(fit)
    if problem is None:
        evaluation = settings.get('evaluation', SYMMETRIC)
        problem = prepare(robot, windows, None, step or settings.get('step'), free=False, evaluation=evaluation)
    elif windows != problem.windows:
        problem = problem.with_windows(windows)
    problem = problem.starting_at(values)
    z = problem.binding.scaled(values)
    began = clock.perf_counter()
    options: dict[str, Any] = {'metric': problem.metric, 'lower': z, 'upper': z}
    last = solve(problem.form.chain, problem.start(), z, problem.data(weight, by_mass=True, widen=30.0), damping=1e-6,
                 tolerance=1.0, **options)  # fmt: skip
    correction = None
    if problem.form.evaluation is SYMMETRIC:
        correction = problem.form.defect(last.states, z, problem.data(weight))
    data = problem.data(weight, by_mass=True, correction=correction)
    last = solve(problem.form.chain, last.states, z, data, damping=1e-6, **options)
    info = parameter_information(last.arrow, problem.metric, last.held)
    chosen = {'form': 'joint_space', 'weight': weight, 'step': problem.grid.step, 'evaluation': problem.form.evaluation.name}
    return summarise(problem, last, info, last.iterations, chosen, correction, clock.perf_counter() - began)


def known(fit: Fit | Robot) -> tuple[Robot, np.ndarray]:
    """Robot and values of its parameters, for work with known parameters."""
    if isinstance(fit, Fit):
        return fit.robot, np.asarray(fit.values)
    free = [p for p in fit.parameters if not p.fixed]
    for p in free:
        if p.start is None:
            raise EstimationError(f'{p.name}: has no start; a robot whose states are tracked needs all its numbers.')
    return fit, np.array([p.start for p in free], dtype=float)
