# SPDX-License-Identifier: Apache-2.0
"""What the sensors tell, before the first solve: rank of equations and measurements, and in words what only priors decide."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation.wrench.equations import matrices, shape
from multibody_estimation.wrench.program import Program

__all__ = ['Observability', 'observe']

WORDS = {
    'acceleration': 'the acceleration of',
    'external': 'the external wrench of',
    'transmitted': 'the joint wrench of',
    'joint': 'the acceleration of joint',
}


@dataclass(frozen=True)
class Observability:
    """Rank of [D; Y] with the assumption of no contact on the links that are not named as contacts."""

    variables: int
    rank: int
    sentences: tuple[str, ...]
    """One per group of quantities that the sensors do not determine."""
    undetermined: tuple[tuple[str, str], ...]
    """Quantity and name of each block with a direction that only priors decide."""

    @property
    def complete(self) -> bool:
        """Whether sensors and equations determine everything."""
        return self.rank == self.variables

    def __str__(self) -> str:
        if self.complete:
            return f'Sensors and equations determine all {self.variables} variables.'
        return '\n'.join(
            [
                f'Sensors and equations determine {self.rank} of {self.variables} variables; priors alone decide the rest:',
                *(f'  {s}' for s in self.sentences),
            ]
        )


def _blocks(program: Program) -> list[tuple[str, str, slice]]:
    names, at, out = program.link_names, 0, []
    base = shape(program).base
    for kind in ('acceleration', 'external', 'transmitted'):
        for k, name in enumerate(names):
            if kind == 'transmitted' and k == base:
                continue
            out.append((kind, name, slice(at, at + 6)))
            at += 6
    for name in program.joint_names:
        out.append(('joint', name, slice(at, at + 1)))
        at += 1
    return out


def observe(program: Program, position: Any = None, tolerance: float = 1e-8) -> Observability:
    """Judge a posture (a generic one by default). A link that is no contact is taken as known to be free of external wrench."""
    n = len(program.joint_names)
    rng = np.random.default_rng(0)
    q = 0.3 * rng.normal(size=n) if position is None else np.asarray(position, dtype=float)
    D, _, Y, _ = matrices(program, q, np.zeros(n), np.zeros(3))
    blocks = _blocks(program)
    touched = {program.frame(name)[0] for name in program.setup.contacts}
    base = shape(program).base
    # Accelerations and joint wrenches of all links but the base follow from the rest by the equations of those links, which are
    # square and always solvable: what is left to be told is the base's acceleration, joint accelerations and contact wrenches.
    place = {(kind, name): np.arange(at.start, at.stop) for kind, name, at in blocks}
    names = program.link_names
    others = [name for k, name in enumerate(names) if k != base]
    dependent = np.concatenate(
        [place[kind, name] for kind in ('acceleration', 'transmitted') for name in others] or [np.zeros(0, int)]
    )
    chosen = [place['acceleration', names[base]]] if program.floating else []
    chosen += [place['external', names[k]] for k in sorted(touched)] + [place['joint', name] for name in program.joint_names]
    independent = np.concatenate(chosen or [np.zeros(0, int)])
    balance = 6 * base + np.arange(6)
    rows = np.setdiff1d(np.arange(len(D)), balance)
    M = np.zeros((D.shape[1], len(independent)))
    M[independent, np.arange(len(independent))] = 1.0
    if len(dependent):
        M[dependent] = -np.linalg.solve(D[np.ix_(rows, dependent)], D[np.ix_(rows, independent)])
    A = np.vstack([D[balance] @ M, Y @ M])
    # Rows of unit length: the judgement must not depend on units of noise or on the masses.
    length = np.linalg.norm(A, axis=1)
    A = A[length > 1e-12] / length[length > 1e-12, None]
    _, s, Vt = np.linalg.svd(A, full_matrices=True)
    rank = int((s > tolerance * max(s[0] if len(s) else 0.0, 1e-300)).sum())
    size, missing = D.shape[1], len(independent) - rank
    if not missing:
        return Observability(size, size, (), ())
    null, _ = np.linalg.qr(M @ Vt[rank:].T)
    sentences, undetermined = _say(null, blocks)
    return Observability(size, size - missing, sentences, undetermined)


def _say(null: np.ndarray, blocks: list[tuple[str, str, slice]]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Group the blocks that null directions tie together; name external wrenches first, as those are what users choose."""
    loose = [b for b in blocks if np.linalg.norm(null[b[2]]) > 1e-6]
    groups: list[list[tuple[str, str, slice]]] = []
    left = list(loose)
    while left:
        group, left = [left[0]], left[1:]
        grown = True
        while grown:
            grown = False
            for b in list(left):
                if any(np.linalg.norm(null[b[2]] @ null[g[2]].T) > 1e-6 for g in group):
                    group.append(b)
                    left.remove(b)
                    grown = True
        groups.append(group)
    sentences = []
    for group in groups:
        for named in (
            [g for g in group if g[0] == 'external'],
            [g for g in group if g[0] == 'joint'],
            [g for g in group if g[0] == 'acceleration'],
        ):
            if not named or (
                named[0][0] == 'acceleration'
                and len(named) < len(group)
                and any(g[0] != 'acceleration' and g[0] != 'transmitted' for g in group)
            ):
                continue  # accelerations that follow from joints or contacts need no sentence of their own
            missing = int((np.linalg.svd(np.concatenate([null[g[2]] for g in named]), compute_uv=False) > 1e-6).sum())
            total = sum(g[2].stop - g[2].start for g in named)
            words = _listed([f"{WORDS[g[0]]} '{g[1]}'" for g in named])
            words = words[0].upper() + words[1:]
            if named[0][0] == 'external' and len(named) > 1:
                sentences.append(
                    f'{words} cannot be told apart: {missing} of their {total} numbers follow from priors alone. Add a force/torque or skin sensor between them, or name fewer contacts.'
                )
            elif named[0][0] == 'external':
                sentences.append(
                    f'{words}: {missing} of its {total} numbers follow from priors alone. Add a sensor that feels it.'
                )
            else:
                sentences.append(
                    f'{words}: {missing} of {total} numbers follow from priors alone. Add accelerometers, or joint accelerations.'
                )
    return tuple(sentences), tuple((b[0], b[1]) for b in loose)


def _listed(words: list[str]) -> str:
    if len(words) > 5:
        return ', '.join(words[:5]) + f' and {len(words) - 5} more'
    return words[0] if len(words) == 1 else ', '.join(words[:-1]) + ' and ' + words[-1]
