# SPDX-License-Identifier: Apache-2.0
"""The one place where identification meets a model: its joints, its numbers by name, its inverse dynamics with time last.

A model is a `tree.Model`, or any frozen pytree dataclass with ``joint_names`` and ``inverse_dynamics(q, qd, qdd)`` for a mechanism
whose equations somebody wrote by hand.
"""

import dataclasses
from typing import Any

import numpy as np

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp, value
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification import inertia
from multibody_estimation.maximal.model import Multibody
from multibody_estimation.tree.leaves import locate

__all__ = ['accelerations', 'as_tree', 'get_number', 'inverse_dynamics', 'joint_names', 'mass_matrix', 'number_names', 'set_number', 'turns']  # fmt: skip


@value
class Numbered:
    """A tree whose estimated numbers stand beside it, so that all others, and above all the zeros, stay known while compiling."""

    base: Any
    numbers: dict

    @property
    def joint_names(self) -> tuple[str, ...]:
        return self.base.joint_names


def _own(model: Any) -> bool:
    return hasattr(model, 'inverse_dynamics')


def _parts(model: Any) -> tuple[Any, dict]:
    if not isinstance(model, Numbered):
        return model, {}
    return model.base, inertia.resolve(model.base, model.numbers)


def joint_names(model: Any) -> tuple[str, ...]:
    """Names of the joints in the order of q."""
    return tuple(model.axis_names) if isinstance(model, Multibody) else tuple(model.joint_names)


def number_names(model: Any) -> list[str]:
    """Dotted names of all numbers of a model that can be estimated."""
    if _own(model):
        return [f.name for f in dataclasses.fields(model) if not f.metadata.get('static')]
    if isinstance(model, Multibody):
        from multibody_estimation.identification import mechanism

        return mechanism.leaf_names(model)
    base = _parts(model)[0]
    return [*tree.leaf_names(base), *inertia.inertia_names(base)]


def turns(model: Any, joint: str) -> bool:
    """Whether a joint is an angle, for which a full turn is no difference."""
    if isinstance(model, Multibody):
        return model.axes[model.axis(joint)][1][0] == 'r'
    kinds = getattr(model, 'joint_types', None)
    return kinds is None or kinds[joint_names(model).index(joint)] == 'revolute'


def as_tree(model: Any) -> tree.Model:
    """The model as a tree with all numbers in place, for functions that take one; some may be traced."""
    if _own(model):
        raise EstimationError('This sensor needs a model made of links and joints, not hand-written equations.')
    base, numbers = _parts(model)
    for name, number in numbers.items():
        base = tree.set_leaf(base, name, number)
    return base


def get_number(model: Any, name: str) -> float:
    """Return a number of the model by its dotted name."""
    if name not in number_names(model):
        raise EstimationError(f"'{name}' is no parameter of this robot.{did_you_mean(name, number_names(model))}")
    if _own(model):
        return float(getattr(model, name))
    if isinstance(model, Multibody):
        from multibody_estimation.identification import mechanism

        return mechanism.get_leaf(model, name)
    base, numbers = _parts(model)
    if inertia.KEY in name:
        return inertia.log_cholesky(base, name.split(inertia.KEY)[0])[name]
    return float(numbers[name] if name in numbers else tree.get_leaf(base, name))


def set_number(model: Any, name: str, new: Any) -> Any:
    """Return the model with one number replaced; a traced one is kept beside the tree."""
    if _own(model):
        return dataclasses.replace(model, **{name: new})
    if isinstance(model, Multibody):
        from multibody_estimation.identification import mechanism

        return mechanism.set_leaf(model, name, new)
    base, numbers = (model.base, model.numbers) if isinstance(model, Numbered) else (model, {})
    if numbers or isinstance(new, jax.core.Tracer):
        return Numbered(base, {**numbers, name: new})
    leaves = inertia.resolve(base, {name: float(new)}) if inertia.KEY in name else {name: float(new)}
    for leaf, number in leaves.items():
        base = _set_known(base, leaf, float(number))
    return base


def _set_known(model: tree.Model, name: str, number: float) -> tree.Model:
    """`tree.set_leaf` in numpy, without a trip to the device."""
    field, index = locate(model, name)
    array = np.array(getattr(model, field), dtype=float)
    array[index] = number
    if field == 'inertia':
        array[index[0], index[2], index[1]] = number
    return model.replace(**{field: array})


def inverse_dynamics(
    model: Any, q: Any, qd: Any, qdd: Any, *, drag: Any = None, slide: Any = None, widen: Any = 1.0
) -> jax.Array:
    """Joint forces for a motion, friction and springs included; all (nq, n), N m or N.

    Friction is the smooth law: it must have a slope where the speed changes sign. ``drag`` and ``slide`` are the speeds that viscous
    and dry friction see where a stepper's own points are wanted; ``widen`` multiplies the width of the sign change.
    """
    if _own(model):
        return model.inverse_dynamics(q, qd, qdd)
    drag, slide = qd if drag is None else drag, qd if slide is None else slide
    base, numbers = _parts(model)
    force = tree.small.inverse_dynamics(base, q, qd, qdd, numbers)

    def number(joint: str, what: str) -> Any:
        name = f'{joint}.{what}'
        if name in numbers:
            return numbers[name]
        leaf = tree.get_leaf(base, name)
        return leaf if isinstance(leaf, jax.core.Tracer) else float(leaf)

    rows = []
    for i, joint in enumerate(base.joint_names):
        limit: Any = number(joint, 'coulomb')
        extra = number(joint, 'stribeck')
        if isinstance(extra, jax.core.Tracer) or extra:
            limit = limit + extra * jnp.exp(-((slide[i] / number(joint, 'stribeck_velocity')) ** 2))
        lost = number(joint, 'damping') * drag[i]
        if isinstance(limit, jax.core.Tracer) or limit:
            lost = lost + limit * jnp.tanh(slide[i] / (widen * number(joint, 'friction_velocity')))
        rows.append(force[i] + lost + number(joint, 'stiffness') * (q[i] - number(joint, 'spring_rest')))
    return jnp.stack(rows)


def mass_matrix(model: Any, q: jax.Array, qd: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mass matrix (nq, nq, n) and bias forces (nq, n): inverse dynamics is linear in the acceleration."""
    nq = q.shape[0]
    zero = jnp.zeros_like(q)

    def force(qdd):
        return inverse_dynamics(model, q, qd, qdd)

    bias: Any = None
    columns = []
    for i in range(nq):
        bias, column = jax.jvp(force, (zero,), (zero.at[i].set(1.0),))
        columns.append(column)
    return jnp.stack(columns, axis=1), bias


def solve_small(M: jax.Array, f: jax.Array) -> jax.Array:
    """M^-1 f for M (nq, nq, n), f (nq, ..., n): Gaussian elimination written out, no pivoting (M is positive definite)."""
    nq = M.shape[0]
    rows = [[M[i, j] for j in range(nq)] for i in range(nq)]
    rhs = [f[i] for i in range(nq)]
    for k in range(nq):
        inverse = 1 / rows[k][k]
        for i in range(k + 1, nq):
            factor = rows[i][k] * inverse
            for j in range(k + 1, nq):
                rows[i][j] = rows[i][j] - factor * rows[k][j]
            rhs[i] = rhs[i] - factor * rhs[k]
    x: list[Any] = [None] * nq
    for i in reversed(range(nq)):
        total = rhs[i]
        for j in range(i + 1, nq):
            total = total - rows[i][j] * x[j]
        x[i] = total / rows[i][i]
    return jnp.stack(x)


def accelerations(model: Any, q: jax.Array, qd: jax.Array, force: jax.Array) -> jax.Array:
    """Joint accelerations under joint forces; all (nq, n)."""
    M, bias = mass_matrix(model, q, qd)
    return solve_small(M, force - bias)
