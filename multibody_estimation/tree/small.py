# SPDX-License-Identifier: Apache-2.0
"""The same equations for few joints and many samples: unrolled, every component a vector over time.

Numbers of the model that are known when the program is traced are Python floats here: products with structural zeros vanish
before XLA sees them. Only one-degree joints and a fixed base; the general functions serve everything else.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.tree.bodies import layout
from multibody_estimation.tree.leaves import locate
from multibody_estimation.tree.model import Model

__all__ = ['inverse_dynamics']

Vec = tuple[Any, Any, Any]


def _zero(x: Any) -> bool:
    return isinstance(x, float) and x == 0.0


def _mul(a: Any, b: Any) -> Any:
    if _zero(a) or _zero(b):
        return 0.0
    if isinstance(a, float) and a in (1.0, -1.0):
        return b if a == 1.0 else -b
    if isinstance(b, float) and b in (1.0, -1.0):
        return a if b == 1.0 else -a
    return a * b


def _sum(*terms: Any) -> Any:
    kept = [t for t in terms if not _zero(t)]
    return sum(kept[1:], kept[0]) if kept else 0.0


def _neg(a: Any) -> Any:
    return 0.0 if _zero(a) else -a


def _dot(a: Any, b: Any) -> Any:
    return _sum(*(_mul(x, y) for x, y in zip(a, b)))


def _add(*vectors: Any) -> Vec:
    return tuple(_sum(*parts) for parts in zip(*vectors))  # type: ignore[return-value]


def _cross(a: Any, b: Any) -> Vec:
    return tuple(_sum(_mul(a[i - 2], b[i - 1]), _neg(_mul(a[i - 1], b[i - 2]))) for i in range(3))  # type: ignore[return-value]


def _apply(R: Any, a: Any) -> Vec:
    return tuple(_dot(row, a) for row in R)  # type: ignore[return-value]


def _transposed(R: Any) -> Any:
    return tuple(zip(*R))


def _product(A: Any, B: Any) -> Any:
    return tuple(tuple(_dot(row, column) for column in zip(*B)) for row in A)


def _scale(s: Any, a: Any) -> Vec:
    return tuple(_mul(s, x) for x in a)  # type: ignore[return-value]


class _Numbers:
    """The model's numbers one by one: given ones first, else floats where known, else traced scalars."""

    def __init__(self, model: Model, numbers: Mapping[str, Any] | None) -> None:
        self.model = model
        self.given = {locate(model, name): x for name, x in (numbers or {}).items()}

    def __call__(self, field: str, *index: int) -> Any:
        if field == 'inertia' and index[1] > index[2]:
            index = (index[0], index[2], index[1])
        if (field, index) in self.given:
            return self.given[field, index]
        array = getattr(self.model, field)
        if isinstance(array, jax.core.Tracer):
            return array[index]
        x = float(np.asarray(array)[index])
        return 0.0 if x == 0.0 else x

    def vector(self, field: str, *index: int) -> Vec:
        return tuple(self(field, *index, k) for k in range(3))  # type: ignore[return-value]


def _trig(angle: Any) -> tuple[Any, Any]:
    if isinstance(angle, float):
        snap = {x: x for x in (0.0, 1.0, -1.0)}
        s, c = float(np.sin(angle)), float(np.cos(angle))
        # A right angle in a URDF is a rounded pi/2: what is zero to rounding is meant as zero.
        return snap.get(float(round(s)), s) if abs(s - round(s)) < 1e-15 else s, float(round(c)) if abs(
            c - round(c)
        ) < 1e-15 else c
    return jnp.sin(angle), jnp.cos(angle)


def _rpy(rpy: Vec) -> Any:
    (sr, cr), (sp, cp), (sy, cy) = (_trig(x) for x in rpy)
    Rx = ((1.0, 0.0, 0.0), (0.0, cr, _neg(sr)), (0.0, sr, cr))
    Ry = ((cp, 0.0, sp), (0.0, 1.0, 0.0), (_neg(sp), 0.0, cp))
    Rz = ((cy, _neg(sy), 0.0), (sy, cy, 0.0), (0.0, 0.0, 1.0))
    return _product(Rz, _product(Ry, Rx))


def _turn(axis: Vec, angle: Any) -> Any:
    s, c = _trig(angle)
    K = ((0.0, _neg(axis[2]), axis[1]), (axis[2], 0.0, _neg(axis[0])), (_neg(axis[1]), axis[0], 0.0))
    KK = _product(K, K)
    return tuple(
        tuple(_sum(1.0 if i == j else 0.0, _mul(s, K[i][j]), _mul(_sum(1.0, _neg(c)), KK[i][j])) for j in range(3))
        for i in range(3)
    )


def inverse_dynamics(
    model: Model, position: Any, velocity: Any, acceleration: Any, numbers: Mapping[str, Any] | None = None
) -> Any:
    """Joint torques (nv, n) of n samples: `tree.inverse_dynamics` with the time axis last.

    ``position``, ``velocity``, ``acceleration``: (nv, n), or one (n,) vector per joint. ``numbers`` gives some of the model's
    numbers by their dotted names, as traced scalars or (n,) vectors; giving them here rather than inside the model keeps all
    others known. Recursive Newton-Euler in link frames, Featherstone 2008, table 5.1.
    """
    if model.floating or any(t not in ('revolute', 'prismatic') for t in model.joint_types):
        raise EstimationError(
            f'{model.name}: the unrolled form is for a fixed base with revolute and prismatic joints; use tree.inverse_dynamics.'
        )
    for what, x in [('position', position), ('velocity', velocity), ('acceleration', acceleration)]:
        if len(x) != model.nv:
            raise EstimationError(f'{model.name}: {what} has {len(x)} rows for {model.nv} joints; the time axis comes last.')
    number, s = _Numbers(model, numbers), model.structure
    joint_of = {link: j for j, link in enumerate(s.joint_links)}
    at = layout(s)
    nl = len(s.link_names)
    (sx, cx), (sy, cy) = _trig(number('gravity_tilt', 0)), _trig(number('gravity_tilt', 1))
    gx, gy, gz = number.vector('gravity')
    gx, gz = _sum(_mul(cy, gx), _mul(sy, gz)), _sum(_mul(cy, gz), _neg(_mul(sy, gx)))
    gy, gz = _sum(_mul(cx, gy), _neg(_mul(sx, gz))), _sum(_mul(sx, gy), _mul(cx, gz))
    o: Vec = (0.0, 0.0, 0.0)
    pose: list = [None] * nl
    w, alpha, a = [o] * nl, [o] * nl, [o] * nl
    a[0] = (_neg(gx), _neg(gy), _neg(gz))
    for i in range(1, nl):  # outward: angular velocity and acceleration, proper acceleration of the origin, in link axes
        k = s.parents[i]
        R, p = _rpy(number.vector('placement_rpy', i)), number.vector('placement', i)
        j = joint_of.get(i)
        if j is None:
            back = _transposed(R)
            w[i], alpha[i] = _apply(back, w[k]), _apply(back, alpha[k])
            a[i] = _apply(back, _add(a[k], _cross(alpha[k], p), _cross(w[k], _cross(w[k], p))))
        else:
            axis, q, d, dd = number.vector('axis', j), position[j], velocity[j], acceleration[j]
            if s.joint_types[j] == 'revolute':
                R = _product(R, _turn(axis, q))
                back = _transposed(R)
                spin = _scale(d, axis)
                w[i] = _add(_apply(back, w[k]), spin)
                alpha[i] = _add(_apply(back, alpha[k]), _scale(dd, axis), _cross(w[i], spin))
                a[i] = _apply(back, _add(a[k], _cross(alpha[k], p), _cross(w[k], _cross(w[k], p))))
            else:
                p = _add(p, _apply(R, _scale(q, axis)))
                back = _transposed(R)
                w[i], alpha[i] = _apply(back, w[k]), _apply(back, alpha[k])
                a[i] = _apply(back, _add(a[k], _cross(alpha[k], p), _cross(w[k], _cross(w[k], p))))
                a[i] = _add(a[i], _scale(dd, axis), _scale(2.0, _cross(w[i], _scale(d, axis))))
        pose[i] = (R, p)
    force, moment = [o] * nl, [o] * nl
    torques: list = [0.0] * model.nv
    for i in range(nl - 1, 0, -1):  # inward: force and moment about the link's origin, in link axes
        if at.link_body[i] == 0:
            continue  # held by the base: no joint feels it
        m, c = number('mass', i), number.vector('center_of_mass', i)
        I = tuple(tuple(number('inertia', i, x, y) for y in range(3)) for x in range(3))
        own = _scale(m, _add(a[i], _cross(alpha[i], c), _cross(w[i], _cross(w[i], c))))
        force[i] = _add(force[i], own)
        moment[i] = _add(moment[i], _apply(I, alpha[i]), _cross(w[i], _apply(I, w[i])), _cross(c, own))
        j = joint_of.get(i)
        if j is not None:
            along = moment[i] if s.joint_types[j] == 'revolute' else force[i]
            torques[j] = _sum(_dot(number.vector('axis', j), along), _mul(number('armature', j), acceleration[j]))
        R, p = pose[i]
        k = s.parents[i]
        moved = _apply(R, force[i])
        force[k] = _add(force[k], moved)
        moment[k] = _add(moment[k], _apply(R, moment[i]), _cross(p, moved))
    shape = jnp.shape(position[0])
    return jnp.stack([jnp.broadcast_to(t, shape) for t in torques])
