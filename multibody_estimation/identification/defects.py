# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with recordings, found before a solve: gaps, saturation, coarse encoders, and readings that the model contradicts.

The last kind is found by asking which simple mistake would explain the motion much better than the data as they are: a joint's sign turned round,
two joints swapped, degrees for radians, a command that acts later than stated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from multibody_estimation.identification import dynamics
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.problem import Problem
from multibody_estimation.identification.robot import Robot
from multibody_estimation.window import Window

__all__ = ['Finding', 'against_the_model', 'in_the_data', 'still_joints']

BETTER = 0.5
"""A mistake is believed when without it less than this share of the unexplained acceleration is left."""
STILL = 0.01
"""A joint that moves less than this tells nothing, rad or m."""
LONGEST = 0.1
"""Longest delay looked for, s."""


@dataclass(frozen=True)
class Finding:
    """Something to look at."""

    kind: str
    """``gap``, ``nan``, ``saturation``, ``quantisation``, ``still``, ``sign``, ``swap``, ``degrees``, ``delay``."""
    where: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def in_the_data(robot: Robot, window: Window) -> tuple[Finding, ...]:
    """What the signals show by themselves."""
    needed = {s.signal for s in (*robot.sensors, *robot.inputs)}
    found = [Finding(d.kind, d.signal, d.sentence) for d in window.defects if d.signal in needed][:20]
    for source in robot.inputs:
        if source.signal in window:
            found += _saturation(window, source)
    for sensor in robot.sensors:
        if isinstance(sensor, Encoder) and sensor.signal in window:
            found += _quantisation(window, sensor)
    return tuple(found)


def _saturation(window: Window, source: Any) -> Iterator[Finding]:
    """Stretches in which a command stands at its extreme while it varies elsewhere."""
    signal = window[source.signal]
    column = source.column or (source.joint if source.joint in signal.columns else signal.columns[0])
    u, time = signal.column(column), window.seconds(source.signal)
    top = np.abs(u).max(initial=0.0)
    if not top or len(np.unique(u)) < 20:
        return
    stands = (np.abs(u) >= top * (1 - 1e-9)) & np.r_[False, np.abs(np.diff(u)) <= 1e-12]
    share = float(stands.mean())
    if share > 0.01:
        first = float(time[np.argmax(stands)])
        yield Finding('saturation', source.joint, f'{source.signal} ({source.joint}) stands at its limit of {top:.4g} {signal.unit} in {100 * share:.0f} % of the '
                      f'samples, first at {first:.3f} s. Was the motor given all of it? Use a smaller amplitude.')  # fmt: skip


def _quantisation(window: Window, sensor: Encoder) -> Iterator[Finding]:
    """Encoders whose step is larger than the noise that is stated."""
    signal = window[sensor.signal]
    for k, joint in enumerate(sensor.joints):
        if joint not in signal.columns:
            continue
        steps = np.abs(np.diff(signal.column(joint)))
        steps = steps[steps > 0]
        if len(steps) < 20:
            continue
        step = float(steps.min())
        regular = np.abs(steps / step - np.round(steps / step)).max() < 1e-3
        noise = float(np.broadcast_to(np.asarray(sensor.noise, dtype=float), (len(sensor.joints),))[k])
        stated = max(noise, sensor.quantisation / np.sqrt(12))
        if regular and stated and step / np.sqrt(12) > 1.5 * stated:
            yield Finding('quantisation', joint, f'{sensor.signal} ({joint}) counts in steps of {step:.3g}, coarser than the noise of {stated:.3g} that is stated. '
                          f'Give it `quantisation: {step:.4g}`.')  # fmt: skip


def still_joints(robot: Robot, joints: Sequence[Any]) -> tuple[Finding, ...]:
    """Joints that hardly move, with the parameters that cannot be told because of it."""
    out = []
    for joint in joints:
        if joint.span < STILL:
            lost = [p.name for p in robot.parameters if p.name.startswith(f'{joint.name}.') and not p.fixed]
            what = (
                f': {", ".join(lost)} cannot be told from it. Excite it, or fix them with `fix: [{", ".join(lost)}]`.'
                if lost
                else '. Excite it.'
            )
            out.append(Finding('still', joint.name, f'The recording holds {joint.name} still (moves {joint.span:.3g}){what}'))
    return tuple(out)


def against_the_model(problem: Problem, q: np.ndarray) -> tuple[Finding, ...]:
    """Simple mistakes that would explain the motion much better."""
    joints = dynamics.joint_names(problem.binding.robot.model)
    read = sorted({j for s in problem.grid.samples if isinstance(s.sensor, Encoder) for j in s.index})
    m = problem.grid.count - 2

    def left(positions: np.ndarray) -> float:
        """Unexplained acceleration as a share of all there is, at its best parameters; a motion that is only smaller explains nothing."""
        z = _fitted(problem, positions)
        data = problem.data(1.0)
        force, M = (np.asarray(x)[..., :m] for x in problem.form.forces(positions, z, data))
        driven = np.asarray(problem.form.input_forces(z, data))[:, :m]
        inverse = np.linalg.inv(np.moveaxis(M, -1, 0))
        e, driven = (np.einsum('kij,jk->ki', inverse, x) for x in (force, driven))
        a = np.diff(positions[:, : m + 2], 2, axis=1).T / problem.grid.step**2
        return float(np.sqrt(np.mean(e**2) / (np.mean(a**2) + np.mean(driven**2) + 1e-300)))

    base = left(q)
    tries: list[tuple[float, str, str, str]] = []
    for j in read:
        turned = q.copy()
        turned[j] *= -1
        tries.append(
            (
                left(turned),
                'sign',
                joints[j],
                f'{joints[j]}: its readings fit the model much better with the opposite sign. Is its encoder mounted the other way round?',
            )
        )
        small = q.copy()
        small[j] *= np.pi / 180
        tries.append(
            (
                left(small),
                'degrees',
                joints[j],
                f'{joints[j]}: its readings look like degrees (they span {np.ptp(q[j]):.3g}). Radians are needed.',
            )
        )
    for a, b in combinations(read, 2):
        other = q.copy()
        other[[a, b]] = q[[b, a]]
        tries.append(
            (
                left(other),
                'swap',
                f'{joints[a]}, {joints[b]}',
                f'{joints[a]} and {joints[b]} fit the model much better when swapped. Are their names or columns in the wrong order?',
            )
        )
    if len(read) > 1:
        small = q * np.pi / 180
        tries.append(
            (
                left(small),
                'degrees',
                ', '.join(joints[j] for j in read),
                f'All readings look like degrees (they span up to {np.ptp(q, axis=1).max():.3g}). Radians are needed.',
            )
        )
    best = min(tries, default=None)
    if best is not None and best[0] < BETTER * base:
        return (Finding(best[1], best[2], best[3]),)
    return tuple(_delays(problem, q))


def _fitted(problem: Problem, q: np.ndarray, steps: int = 4) -> np.ndarray:
    """Scaled parameters (p,) that explain a motion best, the motion taken as it is: a few small linear problems with bounds."""
    z = problem.binding.scaled(problem.binding.starts())
    if not len(z):
        return z
    lower, upper = problem.binding.bounds()
    m, nq = problem.grid.count - 2, problem.form.nq
    M = np.asarray(problem.form.forces(q, z, problem.data(1.0))[1])[:, :, :m]
    reference = np.maximum(np.abs(np.einsum('iik->ik', M)).mean(axis=1), 1e-12)
    # Within a factor of five of the start: what must grow further is no model of this robot.
    near, far = np.maximum(lower, z - 4 * np.maximum(np.abs(z), 0.2)), np.minimum(upper, z + 4 * np.maximum(np.abs(z), 0.2))
    for _ in range(steps):
        row, J = problem.form.rows(q, z, problem.data(1.0, reference=reference))
        r = np.asarray(row)[:, :m].ravel()
        A = np.moveaxis(np.asarray(J)[:, 3 * nq :, :m], 1, -1).reshape(len(r), -1)
        z = z + lsq_linear(A, -r, bounds=(near - z - 1e-12, far - z + 1e-12)).x
    return np.clip(z, lower, upper)


def _delays(problem: Problem, q: np.ndarray) -> Iterator[Finding]:
    """Commands whose effect comes later than stated: by the lag at which the force that the motion needs follows the command best."""
    robot, h, m = problem.binding.robot, problem.grid.step, problem.grid.count - 2
    joints = dynamics.joint_names(robot.model)
    z, data = _fitted(problem, q), problem.data(1.0)
    force = np.asarray(problem.form.forces(q, z, data)[0])[:, :m]
    applied = np.asarray(problem.form.input_forces(z, data))[:, :m]
    needed = force + applied
    most = int(round(LONGEST / h))
    for source in robot.inputs:
        j = joints.index(source.joint)
        u, y = applied[j] - applied[j].mean(), needed[j]
        if not np.ptp(u) or m < 20 * most:
            continue
        # Friction and spring follow the motion, not the command: take them out before the lags are compared.
        v = np.gradient(q[j, 1 : m + 1], h)
        explain = np.stack([np.ones(m), v, np.tanh(v / (0.05 * np.abs(v).max() + 1e-12)), q[j, 1 : m + 1]])
        lags = np.arange(-min(3, most), most + 1)
        inner = slice(most, m - most)
        error = []
        for lag in lags:
            A = np.vstack([np.roll(u, lag), explain])[:, inner].T
            r = y[inner] - A @ np.linalg.lstsq(A, y[inner], rcond=None)[0]
            error.append(float(r @ r))
        k = int(np.argmin(error))
        shift = 0.0
        if 0 < k < len(lags) - 1:
            a, b, c = error[k - 1 : k + 2]
            shift = 0.5 * (a - c) / (a - 2 * b + c) if a - 2 * b + c > 0 else 0.0
        late = (lags[k] + shift) * h
        if error[k] < BETTER * error[int(np.flatnonzero(lags == 0)[0])] and abs(late) > 0.75 * h:
            total = source.delay + late
            yield Finding(
                'delay',
                source.joint,
                f'{source.signal} acts on {source.joint} {1e3 * late:.1f} ms later than stated. Set `delay: {total:.4f}` (s), or estimate {source.signal}.delay.',
            )
