# SPDX-License-Identifier: Apache-2.0
"""Problem 3: covariances of sensors and equations from data, by expectation maximisation (design page, section 7).

E step: posterior of d in every sample. M step, per sensor or group that shares a covariance,

    Sig_y = mean of r r' + Y P Y',        Sig_D = mean of e e' + D P D',

in closed form; exact where priors stand on external wrenches and joint accelerations only. The log evidence must not fall: where it
would (priors on all of d), the step is shortened. Covariances stay above a floor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.kernels.wrench_sweep import KINDS
from multibody_estimation.tree.model import Model
from multibody_estimation.wrench.outliers import predicted_covariance, sensor_blocks
from multibody_estimation.wrench.posterior import evidence_of, solve
from multibody_estimation.wrench.program import Program, compile_wrench
from multibody_estimation.wrench.settings import WrenchSetup, covariance_matrix

__all__ = ['Learned', 'learn_covariances']

MODEL_NOISE = ('equation_noise', 'motion_noise')
SHAPES = ('full', 'diagonal', 'scalar')


@dataclass(frozen=True, eq=False)
class Learned:
    """Setup with the learned covariances, and how it went."""

    setup: WrenchSetup
    evidence: tuple[float, ...]
    """Total log evidence before the first step and after each."""
    deviations: Mapping[str, np.ndarray]
    """Standard deviations by sensor group and model noise, in their units."""
    converged: bool
    floored: tuple[str, ...]
    """Groups that ended at their floor: the data do not separate their noise from the signal, or there is none."""

    def __str__(self) -> str:
        how = (
            f'Converged in {len(self.evidence) - 1} steps'
            if self.converged
            else f'Not converged in {len(self.evidence) - 1} steps: raise iterations='
        )
        lines = [f'{how}; log evidence {self.evidence[0]:.6g} -> {self.evidence[-1]:.6g}.']
        lines += [f'  {name:<28} ± {np.array2string(np.asarray(x), precision=4)}' for name, x in self.deviations.items()]
        lines += [f'  {name}: at its floor; the recording cannot tell its noise from the signal.' for name in self.floored]
        return '\n'.join(lines)


def _shaped(C: np.ndarray, shape: str, floor: float) -> tuple[np.ndarray, bool]:
    """Best covariance of the wanted shape with eigenvalues of at least floor^2 (exact constrained maximum of the M step)."""
    C = 0.5 * (C + C.T)
    if shape == 'scalar':
        v = max(np.trace(C) / len(C), floor**2)
        return v * np.eye(len(C)), v <= floor**2
    if shape == 'diagonal':
        v = np.maximum(np.diag(C), floor**2)
        return np.diag(v), bool((np.diag(C) <= floor**2).any())
    values, vectors = np.linalg.eigh(C)
    low = values <= floor**2
    return (vectors * np.maximum(values, floor**2)) @ vectors.T, bool(low.any())


def _groups(setup: WrenchSetup, learn: Sequence[str] | None) -> dict[str, list[int]]:
    """Sensors by the word they share, or by name; only those to be learned."""
    found: dict[str, list[int]] = {}
    for s, sensor in enumerate(setup.sensors):
        found.setdefault(sensor.share or sensor.name, []).append(s)
    for name, members in found.items():
        types = {setup.sensors[s].type for s in members}
        if len(types) > 1:
            raise EstimationError(
                f"The sensors that share '{name}' are of types {', '.join(sorted(types))}; one covariance needs one type."
            )
    if learn is None:
        return found
    known = [*found, *MODEL_NOISE]
    for name in learn:
        if name not in known:
            raise EstimationError(f"There is no sensor or group '{name}' to learn.{did_you_mean(name, known)}")
    return {name: members for name, members in found.items() if name in learn}


def _expect(
    program: Program, data: tuple, groups: Mapping[str, list[int]], model: Sequence[str], chunk: int
) -> tuple[float, dict[str, np.ndarray], dict[str, int]]:
    """Log evidence, and sum of second moments and number of samples of each group."""
    sensors = sorted({s for members in groups.values() for s in members})
    pairs = sensor_blocks(program, sensors)
    nodes = {'equation_noise': [], 'motion_noise': []}  # type: dict[str, list[int]]
    for i in range(len(program.nodes.nodes)):
        if program.arrays['Sne'][i].any():
            nodes['equation_noise'].append(i)
        if i and program.arrays['Sa'][i].any():
            nodes['motion_noise'].append(i)
    kinds = {'equation_noise': KINDS['wrench_multiplier'], 'motion_noise': KINDS['motion_multiplier']}
    extra = tuple((i, kinds[name]) for name in model for i in nodes[name])
    total, moments, counts = 0.0, {}, {}  # type: ignore[var-annotated]
    for begin in range(0, len(data[0]), chunk):
        q, dq, om, y = (x[begin : begin + chunk] for x in data)
        found = solve(program, q, dq, om, y, multipliers=True, more=pairs + extra)
        total += float(evidence_of(found).sum())
        C = np.asarray(found.sweep.covariances)
        r = found.residuals
        for name, members in groups.items():
            for s in members:
                x = program.terms[s]
                rs = r[:, x.row : x.row + x.sensor.size]
                there = np.isfinite(rs).all(1)  # missing samples are dropped, not zeroed
                moment = rs[there].T @ rs[there] + predicted_covariance(program, s, pairs, C[there]).sum(0)
                moments[name] = moments.get(name, 0.0) + moment
                counts[name] = counts.get(name, 0) + int(there.sum())
        at = len(pairs)
        multipliers = np.asarray(found.sweep.multipliers)
        for name in model:
            half, field = (slice(0, 6), 'Sne') if name == 'equation_noise' else (slice(6, 12), 'Sa')
            for i in nodes[name]:
                S = program.arrays[field][i]
                e = multipliers[:, i, half] @ S
                moments[name] = moments.get(name, 0.0) + e.T @ e + (S + S @ C[:, at] @ S).sum(0)
                counts[name] = counts.get(name, 0) + len(e)
                at += 1
    return total, moments, counts


def _apply(setup: WrenchSetup, groups: Mapping[str, list[int]], new: Mapping[str, np.ndarray]) -> WrenchSetup:
    sensors = list(setup.sensors)
    for name, members in groups.items():
        if name in new:
            for s in members:
                sensors[s] = replace(sensors[s], noise=new[name])
    model = {name: {'*': new[name]} for name in MODEL_NOISE if name in new}
    return setup.replace(sensors=tuple(sensors), **model)


def _current(setup: WrenchSetup, groups: Mapping[str, list[int]], model: Sequence[str]) -> dict[str, np.ndarray]:
    out = {name: setup.sensors[members[0]].covariance() for name, members in groups.items()}
    return out | {name: covariance_matrix(getattr(setup, name).get('*', 0.0), 6, name, True) for name in model}


class _State(NamedTuple):
    setup: WrenchSetup
    covariances: dict[str, np.ndarray]
    evidence: float
    moments: dict[str, np.ndarray]
    counts: dict[str, int]


def _log(C: np.ndarray, back: bool = False) -> np.ndarray:
    values, vectors = np.linalg.eigh(C)
    return (vectors * (np.exp(np.clip(values, -200, 200)) if back else np.log(np.maximum(values, 1e-300)))) @ vectors.T


def _leap(x0: Mapping, x1: Mapping, x2: Mapping, shape: str, floors: Mapping[str, float]) -> dict[str, np.ndarray] | None:
    """Extrapolation of three iterates in the logarithm of the covariances; None where they hardly move."""
    logs = [{name: _log(C) for name, C in x.items()} for x in (x0, x1, x2)]
    r = {name: logs[1][name] - logs[0][name] for name in x0}
    v = {name: logs[2][name] - logs[1][name] - r[name] for name in x0}
    size = [np.sqrt(sum((d[name] ** 2).sum() for name in x0)) for d in (r, v)]
    if size[1] < 1e-12 or size[0] < 1e-9:
        return None
    alpha = -min(max(size[0] / size[1], 1.0), 64.0)
    if alpha == -1.0:
        return None
    return {
        name: _shaped(_log(logs[0][name] - 2 * alpha * r[name] + alpha**2 * v[name], back=True), shape, floors[name])[0]
        for name in x0
    }


def learn_covariances(
    model: Model, setup: WrenchSetup, position: Any, velocity: Any, base_velocity: Any, measurements: Any,
    learn: Sequence[str] | None = None, shape: str = 'diagonal', floor: float | Mapping[str, float] = 1e-6,
    iterations: int = 50, tolerance: float = 1e-7, chunk: int = 256,
) -> Learned:  # fmt: skip
    """Learn the covariances of sensors, of the groups they share, and of the equations of the model.

    Args:
        model: the robot.
        setup: start values; what is not learned stays.
        position: of the joints, (N, n); ``velocity`` likewise, ``base_velocity`` (N, 3), ``measurements`` (N, ny) with NaN where missing.
        velocity: (N, n).
        base_velocity: (N, 3).
        measurements: (N, ny).
        learn: names of sensors or groups, ``equation_noise``, ``motion_noise``; all sensors by default. All links share model noise.
        shape: ``full``, ``diagonal`` or ``scalar`` covariance.
        floor: lowest standard deviation, one for all or by name.
        iterations: at most.
        tolerance: of the log evidence per sample and step, at which it has converged.
        chunk: samples solved at once.
    """
    if shape not in SHAPES:
        raise EstimationError(f"shape is '{shape}'.{did_you_mean(shape, SHAPES)}")
    groups = _groups(setup, learn)
    noise = [name for name in MODEL_NOISE if learn is not None and name in learn]
    data = tuple(np.asarray(x, dtype=float) for x in (position, velocity, base_velocity, measurements))
    floors = {name: float(floor.get(name, 1e-6)) if isinstance(floor, Mapping) else float(floor) for name in (*groups, *noise)}
    # A start below its floor is raised to it: the evidence may only be compared above the floors.
    current = {name: _shaped(C, 'full', floors[name])[0] for name, C in _current(setup, groups, noise).items()}
    setup = _apply(setup, groups, current)
    program = compile_wrench(model, setup)
    state = _State(setup, current, *_expect(program, data, groups, noise, chunk))
    for name in groups:
        if not state.counts.get(name):
            raise EstimationError(f"'{name}' has no sample in this recording: its noise cannot be learned.")

    def at(covariances: dict[str, np.ndarray]) -> _State:
        changed = _apply(setup, groups, covariances)
        return _State(changed, covariances, *_expect(compile_wrench(model, changed), data, groups, noise, chunk))

    def step(state: _State) -> tuple[_State, set[str]]:
        """One EM step, shortened until the evidence does not fall."""
        best, low = {}, set()
        for name, moment in state.moments.items():
            best[name], at_floor = _shaped(moment / state.counts[name], shape, floors[name])
            if at_floor:
                low.add(name)
        share = 1.0
        while share > 1e-3:
            new = at({name: (1 - share) * state.covariances[name] + share * C for name, C in best.items()})
            if new.evidence >= state.evidence - 1e-9 * abs(state.evidence):
                return new, low
            share /= 2
        return state, low

    history, floored, converged = [state.evidence], set(), False  # type: ignore[var-annotated]
    while len(history) <= iterations and not converged:
        before = state
        first, floored = step(state)
        history.append(first.evidence)
        second, floored = step(first)
        history.append(second.evidence)
        state = second
        # EM crawls where two noises share a signal: its last two steps are carried on along their trend (SQUAREM, Varadhan and
        # Roland 2008), and the leap is kept only if the evidence rises.
        leap = _leap(before.covariances, first.covariances, second.covariances, shape, floors)
        if leap is not None:
            there = at(leap)
            if there.evidence > state.evidence:
                state = there
                history.append(state.evidence)
        converged = state.evidence - before.evidence < tolerance * len(data[0])
    setup, current = state.setup, state.covariances
    deviations = {name: np.sqrt(np.diag(C)) for name, C in current.items()}
    return Learned(setup, tuple(history), deviations, converged, tuple(sorted(floored)))
