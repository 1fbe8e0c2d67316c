# SPDX-License-Identifier: Apache-2.0
"""Simple mistakes in a recording that the model contradicts: a sign turned round, joints swapped, degrees for radians, a command that acts late.

Each is tried: the readings are mended, the parameters and the motion are fitted softly (an acceleration error of a tenth of the accelerations
is allowed, so that a nominal model far off its numbers serves), and the misfit per reading is compared with that of the readings as they are.
Nothing is compiled anew for a try.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.finding import Finding
from multibody_estimation.identification.grid import input_means
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.problem import Problem
from multibody_estimation.identification.start import first_positions
from multibody_estimation.least_squares import solve

__all__ = ['find_mistakes']

BETTER = 0.5
"""A mistake is believed when without it less than this share of the misfit is left."""
EXPLAINED = 1.5
"""Misfit per reading (in squares of its noise) up to which there is nothing to mend; 1 is expected."""
SOFT = 0.1
"""Allowed acceleration error as a share of the accelerations."""
DEGREES = 6.0
"""Readings that span less are no degrees that one could tell."""
LONGEST = 0.1
"""Longest delay looked for, s."""
SOONEST = -0.02
"""Earliest effect looked for, s: stamps of sensors may be late too."""


@dataclass(frozen=True)
class Try:
    """A mistake and the matrix (nq, nq) that mends the readings; or the input whose sign is turned."""

    kind: str
    where: str
    mend: np.ndarray
    sentence: str
    source: int = -1


def find_mistakes(problem: Problem) -> tuple[Finding, ...]:
    """The one mistake that would explain the motion much better, if there is one; else delays of the commands."""
    q, nq = problem.start(), problem.form.nq
    base, z, _ = _misfit(problem, np.eye(nq))
    # With few readings against the noise, or a motion that is explained, there is nothing to look for but a delay.
    if base > EXPLAINED:
        tried = [(_misfit(problem, t.mend, t.source)[0], k, t) for k, t in enumerate(_tries(problem))]
        best = min(tried, default=None)
        if best is not None and best[0] < BETTER * base and not _by_delay(problem, q, z, best[0]):
            return (Finding(best[2].kind, best[2].where, best[2].sentence),)
    return tuple(_delays(problem, q, z))


def _tries(problem: Problem) -> Iterator[Try]:
    joints, nq = dynamics.joint_names(problem.binding.robot.model), problem.form.nq
    read = sorted({j for s in problem.grid.samples if isinstance(s.sensor, Encoder) for j in s.index})
    span = np.zeros(nq)
    for s in problem.grid.samples:
        if isinstance(s.sensor, Encoder):
            span[list(s.index)] = [np.ptp(y[w > 0]) if (w > 0).any() else 0.0 for y, w in zip(s.values, s.weight)]

    def scaled(which: list[int], factor: float) -> np.ndarray:
        T = np.eye(nq)
        T[which, which] = factor
        return T

    for j in read:
        yield Try('sign', joints[j], scaled([j], -1.0), f'{joints[j]}: its readings fit the model much better with the opposite sign. Is its encoder mounted the '
                  'other way round, or the axis in the URDF?')  # fmt: skip
    for k, source in enumerate(problem.binding.robot.inputs):
        yield Try('sign', source.joint, np.eye(nq), f'{source.signal} ({source.joint}) fits the model much better with the opposite sign. Is the motor wired the other way '
                  'round?', k)  # fmt: skip
    large = [j for j in read if span[j] > DEGREES]
    for j in large:
        yield Try('degrees', joints[j], scaled([j], np.pi / 180), f'{joints[j]}: its readings look like degrees (they span {span[j]:.3g}). Radians are needed.')  # fmt: skip
    if len(large) > 1:
        yield Try('degrees', ', '.join(joints[j] for j in large), scaled(large, np.pi / 180), f'{", ".join(joints[j] for j in large)}: the readings look like degrees '
                  f'(they span up to {span.max():.3g}). Radians are needed.')  # fmt: skip
    for a, b in combinations(read, 2):
        T = np.eye(nq)
        T[[a, b]] = T[[b, a]]
        yield Try('swap', f'{joints[a]}, {joints[b]}', T, f'{joints[a]} and {joints[b]} fit the model much better when swapped. Are their names or columns in the wrong '
                  'order?')  # fmt: skip


def _mended(problem: Problem, mend: np.ndarray) -> tuple[np.ndarray, list]:
    """First positions and samples of all sensors, those of the encoders mended before full turns are counted."""
    placed, out = [], []
    for s, (y, w, lag) in zip(problem.grid.samples, problem.recorded['samples']):
        if isinstance(s.sensor, Encoder):
            at = np.array(s.index)
            s = replace(s, values=mend[np.ix_(at, at)] @ s.values)
            y = jnp.asarray(s.values)
        placed.append(s)
        out.append((y, w, lag))
    return first_positions(replace(problem.grid, samples=tuple(placed)), problem.form.nq, problem.binding.offsets()), out


def _scale(problem: Problem, q: np.ndarray) -> float:
    """Allowed acceleration error, rad/s^2."""
    a = np.diff(q[:, : problem.grid.count], 2, axis=1) / problem.grid.step**2 * problem.grid.linked[: problem.grid.count - 2]
    return max(SOFT * float(np.sqrt(np.mean(a**2))), 1e-6)


def _turned(data: dict, which: int) -> dict:
    """The data with one input of opposite sign."""
    means, tables = list(data['means']), list(data['tables'])
    means[which] = tuple(-x for x in means[which])
    tables[which] = (tables[which][0], *(-x for x in tables[which][1:]))
    return data | {'tables': tables, 'means': means}


def _misfit(problem: Problem, mend: np.ndarray, source: int = -1) -> tuple[float, np.ndarray, Any]:
    """Misfit per reading of a soft fit to mended readings, its parameters (p,) and states."""
    q, samples = _mended(problem, mend)
    z = problem.binding.scaled(problem.binding.starts())
    data = problem.data(_scale(problem, q), by_mass=True, widen=30.0) | {'samples': samples}
    data = _turned(data, source) if source >= 0 else data
    lower, upper = problem.binding.bounds()
    options: dict[str, Any] = {'lower': lower, 'upper': upper, 'max_iterations': 12, 'damping': 1e-3, 'tolerance': 1.0}
    # The parameters alone first, the motion held still; then both.
    still = solve(problem.form.chain, q, z, data, metric=problem.metric * 1e15, **options)
    last = solve(problem.form.chain, q, still.parameters, data, metric=problem.metric, **options)
    if not np.isfinite(last.cost):
        return np.inf, z, q
    return last.cost / _readings(problem), np.asarray(last.parameters), last.states


def _readings(problem: Problem) -> int:
    return max(sum(int((s.weight > 0).sum()) for s in problem.grid.samples), 1)


def _late(problem: Problem, data: dict, which: int, lag: float) -> dict:
    """The data with one input acting later by ``lag`` seconds."""
    inner, h = problem.grid.time[1:-1], problem.grid.step
    delay = problem.binding.known_inputs()[which]['delay']
    table = [np.asarray(x) for x in data['tables'][which]]
    table[0] = table[0] + lag
    means, tables = list(data['means']), list(data['tables'])
    tables[which] = tuple(jnp.asarray(x) for x in table)
    means[which] = tuple(jnp.asarray(x) for x in input_means(np, table, inner, h, delay))
    return data | {'tables': tables, 'means': means}


def _profile(problem: Problem, q: np.ndarray, z: np.ndarray, which: int, lags: np.ndarray) -> np.ndarray:
    """Misfit per reading for every lag of an input."""
    lower, upper = problem.binding.bounds()
    data = problem.data(_scale(problem, q), by_mass=True, widen=30.0)
    out = []
    for lag in lags:
        late = _late(problem, data, which, float(lag))
        last = solve(
            problem.form.chain,
            q,
            z,
            late,
            lower=lower,
            upper=upper,
            metric=problem.metric,
            max_iterations=8,
            damping=1e-3,
            tolerance=1.0,
        )
        out.append(last.cost / _readings(problem) if np.isfinite(last.cost) else np.inf)
    return np.array(out)


def _by_delay(problem: Problem, q: np.ndarray, z: np.ndarray, rival: float) -> bool:
    """Whether a delay explains the misfit at least as well as another mistake."""
    h = problem.grid.step
    lags = np.arange(2 * h, LONGEST, max(2 * h, LONGEST / 10))
    return any(_profile(problem, q, z, k, lags).min() < rival for k in range(len(problem.binding.robot.inputs)))


def _delays(problem: Problem, q: np.ndarray, z: np.ndarray) -> Iterator[Finding]:
    """Commands whose effect comes later than stated: the lag of least misfit, coarsely and then finely."""
    robot, h, total = problem.binding.robot, problem.grid.step, _readings(problem)
    for k, source in enumerate(robot.inputs):
        name = f'{source.signal}.delay'
        if problem.binding.estimates(name) or not np.ptp(np.asarray(problem.recorded['means'][k][0])):
            continue
        grain = max(h, LONGEST / 20)
        coarse = np.arange(np.ceil(SOONEST / grain), round(LONGEST / grain) + 1) * grain
        misfit = _profile(problem, q, z, k, coarse)
        at = coarse[int(np.argmin(misfit))]
        fine = at + grain / 2 * np.arange(-1, 2)
        a, b, c = _profile(problem, q, z, k, fine)
        bend = a - 2 * b + c
        late = float(at + (grain / 4 * (a - c) / bend if bend > 0 else 0.0))
        now = misfit[int(np.argmin(np.abs(coarse)))]
        # Believed where it is longer than a sample and the misfit falls by what chance does not do.
        gain = (now - min(b, misfit.min())) * total
        if abs(late) > 0.75 * h and gain > max(25.0, 0.02 * now * total):
            when = 'later' if late > 0 else 'sooner'
            yield Finding('delay', source.joint, f'{source.signal} acts on {source.joint} {1e3 * abs(late):.1f} ms {when} than stated. '
                          f'Set `delay: {max(source.delay + late, 0.0):.4f}` (s), or estimate {name}.')  # fmt: skip
