# SPDX-License-Identifier: Apache-2.0
"""`identify` for robots with many joints: joint torques with their noise, positions with theirs, and a weak prior to the start.

What is minimised over all positions and parameters is the misfit of torques and readings together,

    sum |ID(q, v, a; chi) - tau|^2 / sigma_tau^2 + sum |q - y|^2 / sigma_y^2 + |z - z0|^2 / WEAK^2,

so that speeds and accelerations are estimated, never filtered, and directions that the data cannot see stay at the URDF's numbers.
"""

import time as clock
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.arm_form import arm_form
from multibody_estimation.identification.binding import Binding, Key, bind
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.grid import make_grid
from multibody_estimation.identification.inertia import KEY
from multibody_estimation.identification.parameters import Parameter
from multibody_estimation.identification.problem import Problem
from multibody_estimation.identification.robot import Robot
from multibody_estimation.identification.summary import summarise
from multibody_estimation.least_squares import Information, Solution, factorise, solve
from multibody_estimation.window import Window

__all__ = ['WEAK', 'arm_problem', 'identify_arm', 'torque_noise']

WEAK = 1.0
"""Standard deviation of the prior on inertial parameters in their scales (0.3: about a third of a mass or a radius)."""
SHARE = 0.01
"""Noise of torques as a share of their rms, where the robot does not say it."""


def arm_problem(robot: Robot, windows: Sequence[Window], parameters: Iterable[Parameter], step: float | None = None, *, free: bool = True) -> Problem:  # fmt: skip
    """The recordings on a grid with the form for many joints."""
    binding = bind(robot, tuple(parameters))
    grid = make_grid(binding.robot, windows, step)
    at_stage = tuple(not s.lag.any() for s in grid.samples)
    return Problem(arm_form(Key(binding), at_stage, tuple(s.turns for s in grid.samples), free), binding, grid, tuple(windows))


def torque_noise(problem: Problem) -> np.ndarray:
    """Standard deviation of every joint's force, (nq,) N m or N; joints without a motor are trusted to the least of the others."""
    robot, names = problem.binding.robot, problem.binding.robot.model.joint_names
    noise = np.zeros(len(names))
    for source, table in zip(robot.inputs, problem.grid.inputs):
        u = table.value[table.time < 1e29] * source.gain
        own = abs(source.gain) * source.noise if source.noise else SHARE * float(np.sqrt(np.mean(u**2)))
        noise[names.index(source.joint)] = np.hypot(noise[names.index(source.joint)], own)
    if not noise.any():
        raise EstimationError(
            f'{robot.name}: no input moves in the recording; inertial parameters of an arm need its joint torques. '
            'Name their topic: inputs: {effort: {topic: "/joint_states#effort", joints: [...]}}.'
        )
    return np.where(noise > 0, noise, noise[noise > 0].min())


def weak_prior(binding: Binding) -> np.ndarray:
    """Information (p, p) that holds inertial parameters near the start."""
    return np.diag(
        [
            1 / WEAK**2 if KEY in p.target or '.inertia.' in p.target or p.target.endswith('mass') else 1e-8
            for p in binding.parameters
        ]
    )


def identify_arm(
    robot: Robot, windows: Sequence[Window], parameters: Iterable[Parameter], *, step: float | None = None, max_iterations: int = 25,
    tolerance: float = 0.1, progress: Any = None, cancelled: Any = None, problem: Problem | None = None,
) -> Fit:  # fmt: skip
    """Estimate the parameters of an arm; see `identify` for the arguments."""
    problem = problem or arm_problem(robot, windows, parameters, step)
    binding, form = problem.binding, problem.form
    if not binding.parameters:
        raise EstimationError('No parameter is free: nothing to identify. Use track for states with known parameters.')
    began = clock.perf_counter()
    q, z0 = problem.start(), binding.scaled(binding.starts())
    lower, upper = binding.bounds()
    prior = weak_prior(binding)
    noise = torque_noise(problem)
    options: dict[str, Any] = {
        'lower': lower,
        'upper': upper,
        'progress': progress,
        'cancelled': cancelled,
        'tolerance': tolerance,
    }

    def data(q: Any, z: np.ndarray) -> dict:
        return problem.data(1.0, reference=spread(problem, noise, q, z), pin=(prior, z0))

    # The parameters alone first, the motion as the smoothed readings have it; then both.
    still = solve(form.chain, q, z0, data(q, z0), metric=problem.metric * 1e15, max_iterations=12, damping=1e-5, **(options | {'tolerance': 1.0}))  # fmt: skip
    first = solve(
        form.chain,
        q,
        still.parameters,
        data(q, still.parameters),
        metric=problem.metric,
        max_iterations=4,
        damping=1e-9,
        **options,
    )
    last = solve(form.chain, first.states, first.parameters, data(first.states, first.parameters), metric=problem.metric,
                 max_iterations=max_iterations, damping=1e-9, **options)  # fmt: skip
    info, count = _information(problem, last, prior), still.iterations + first.iterations + last.iterations
    settings = {'form': 'arm', 'weight': 1.0, 'step': problem.grid.step, 'correction': False, 'torque_noise': noise.tolist()}
    fit = summarise(problem, last, info, count, settings, None, clock.perf_counter() - began)
    return replace(fit, blind=_blind(binding, info))


def spread(problem: Problem, noise: np.ndarray, q: Any, z: np.ndarray) -> np.ndarray:
    """Standard deviation (nq, n-2) of the force residuals: larger where a joint turns round.

    There dry friction changes sign within a sample, at a moment that the samples do not tell: it may be anything between its bounds.
    """
    model, _, _ = problem.binding.apply(problem.binding.values(np.asarray(z)))
    dry = np.asarray(dynamics.as_tree(model).coulomb, dtype=float)[:, None]
    h, q = problem.grid.step, np.asarray(q)
    v, a = (q[:, 2:] - q[:, :-2]) / (2 * h), (q[:, 2:] - 2 * q[:, 1:-1] + q[:, :-2]) / h**2
    turning = np.exp(-((v / (2 * h * np.abs(a) + 1e-3)) ** 2))
    return np.sqrt(noise[:, None] ** 2 + (dry * turning) ** 2)


def _blind(binding: Binding, info: Information) -> tuple[str, ...]:
    """One sentence for all directions that stay at the start."""
    if not info.blind:
        return ()
    share = np.sum(np.square(info.blind), axis=0)
    most = [binding.parameters[i].title for i in np.argsort(-share)[:5] if share[i] > 0.5]
    return (
        f'{len(info.blind)} of {len(binding.parameters)} combinations of parameters; they stay where the start has them'
        + (f', most of all {", ".join(most)}.' if most else '.'),
    )


def _information(problem: Problem, last: Solution, prior: np.ndarray) -> Information:
    """Covariance with the prior; blind are the directions that owe most of their information to it."""
    fac = factorise(last.arrow, np.float64(1e-13), problem.metric)
    S = 0.5 * (np.asarray(fac.S) + np.asarray(fac.S).T)
    free = np.flatnonzero(np.asarray(last.held) == 0)
    covariance = np.zeros_like(S)
    covariance[np.ix_(free, free)] = np.linalg.inv(S[np.ix_(free, free)])
    values, vectors = np.linalg.eigh(S[np.ix_(free, free)])
    blind = []
    for value, vector in zip(values, vectors.T):
        if value < 2 * (vector**2 @ np.diag(prior)[free]):
            direction = np.zeros(len(S))
            direction[free] = vector
            blind.append(direction)
    return Information(S, covariance, tuple(blind))
