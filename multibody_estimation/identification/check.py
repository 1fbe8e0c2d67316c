# SPDX-License-Identifier: Apache-2.0
"""`check`: what can be told from a recording, before anything is solved, and what is wrong with it."""

from dataclasses import dataclass

import numpy as np

from multibody_estimation.identification import defects, dynamics
from multibody_estimation.identification.identify import WEIGHT
from multibody_estimation.identification.mistakes import find_mistakes
from multibody_estimation.identification.problem import Problem, prepare
from multibody_estimation.identification.robot import Robot
from multibody_estimation.identification.summary import blind_sentences
from multibody_estimation.least_squares import parameter_information
from multibody_estimation.window import Window

__all__ = ['Check', 'check']

WELL, WEAK = 0.1, 0.5
"""Share of its size to which a parameter must be told to count as well told; above the second, as not told."""


@dataclass(frozen=True)
class Joint:
    """How much a joint moves."""

    name: str
    span: float
    """rad or m."""
    speed: float
    """Largest, rad/s or m/s."""
    turns: int
    """How often it turns round."""


@dataclass(frozen=True)
class Told:
    """What the recording says about a parameter, by the bound of Cramer and Rao at the nominal model."""

    name: str
    title: str
    unit: str
    start: float
    std: float
    """Standard deviation that no estimate from this recording can beat; infinite where it tells nothing."""
    size: float
    """What it is measured by: its start, or a typical change where that is zero."""

    @property
    def verdict(self) -> str:
        """In words."""
        share = self.std / self.size if self.size else np.inf
        return 'well' if share < WELL else 'roughly' if share < WEAK else 'hardly' if np.isfinite(share) else 'not at all'


@dataclass(frozen=True)
class Check:
    """Result of `check`; prints as a table with sentences."""

    joints: tuple[Joint, ...]
    parameters: tuple[Told, ...]
    groups: tuple[str, ...]
    """Combinations that are seen only together."""
    findings: tuple[defects.Finding, ...]

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with the data and every parameter can be told."""
        return not self.findings and not self.groups and all(p.verdict in ('well', 'roughly') for p in self.parameters)

    def __str__(self) -> str:
        lines = ['  joint                moves        fastest      turns round']
        lines += [f'  {j.name:<18} {j.span:>9.3g}   {j.speed:>9.3g} /s   {j.turns:>6}' for j in self.joints]
        if self.parameters:
            wide = max(len(p.title) for p in self.parameters)
            lines.append(f'\n  {"parameter":<{wide}}  {"start":>11}  {"std at best":>11}  unit         told')
            lines += [
                f'  {p.title:<{wide}}  {p.start:>11.4g}  {p.std:>11.2g}  {p.unit:<11}  {p.verdict}' for p in self.parameters
            ]
        lines += [f'  What the data cannot tell: {sentence}' for sentence in self.groups]
        weak = [p.title for p in self.parameters if p.verdict == 'hardly']
        if weak:
            lines.append(f'  Hardly told: {", ".join(weak)}. Excite more, fix them, or give them a prior.')
        lines += [f'  {finding}' for finding in self.findings]
        lines.append(
            '  Nothing is wrong with this recording.'
            if not self.findings
            else f'  {len(self.findings)} thing(s) to look at before identifying.'
        )
        return '\n'.join(lines)


def check(robot: Robot, window: Window, *, weight: float | None = None, step: float | None = None) -> Check:
    """Look at a recording with the nominal model: excitation, attainable accuracy, defects. Nothing is solved."""
    raw = defects.in_the_data(robot, window)
    problem = prepare(robot, window, None, step or robot.settings.get('step'))
    q = problem.start()
    joints = tuple(
        _joint(name, row[: problem.grid.count], problem.grid.step) for name, row in zip(dynamics.joint_names(robot.model), q)
    )
    still = defects.still_joints(robot, joints)
    # A joint that stands still makes every mistake possible.
    found = () if still else find_mistakes(problem)
    findings = (*raw, *still, *found)
    weight = float(robot.settings.get('weight', WEIGHT) if weight is None else weight)
    told, groups = _attainable(problem, q, weight)
    return Check(joints, told, groups, findings)


def _joint(name: str, q: np.ndarray, h: float) -> Joint:
    v = np.gradient(q, h)
    turns = int((np.diff(np.sign(v[np.abs(v) > 0.05 * np.abs(v).max(initial=1e-12)])) != 0).sum())
    return Joint(name, float(np.ptp(q)), float(np.abs(v).max()), turns)


def _attainable(problem: Problem, q: np.ndarray, weight: float) -> tuple[tuple[Told, ...], tuple[str, ...]]:
    """Bound of Cramer and Rao for every parameter at the nominal model."""
    binding = problem.binding
    if not binding.parameters:
        return (), ()
    starts = binding.starts()
    z = binding.scaled(starts)
    M = np.asarray(problem.form.forces(q, z, problem.data(1.0))[1])[:, :, : problem.grid.count - 2]
    reference = np.maximum(np.abs(np.einsum('iik->ik', M)).mean(axis=1), 1e-12)
    normal = problem.form.chain.normal(q, z, problem.data(weight, reference=reference, by_mass=True))
    info = parameter_information(normal, problem.metric, np.zeros(len(z), dtype=int))
    with np.errstate(invalid='ignore'):
        std = np.sqrt(np.diag(info.covariance)) * np.abs(binding.slopes(z))
    told = tuple(
        Told(p.name, p.title, p.unit, float(s), float(sd), abs(float(s)) or p.step)
        for p, s, sd in zip(binding.parameters, starts, std)
    )
    return told, blind_sentences(binding, info.blind)
