# SPDX-License-Identifier: Apache-2.0
"""Inverse dynamics and mass matrix by the compiled kernel, with derivatives from the JAX code that is its twin (`tree.dynamics`).

The kernel gives the values, for one sample or for all samples of a `jax.vmap` at once. Where a derivative is asked for, it is that of
the twin: both are the same function of the same numbers, which the tests hold to rounding.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry import spatial
from multibody_estimation.geometry.spatial import apply, multiply, skew
from multibody_estimation.kernels import tree_dynamics
from multibody_estimation.tree.bodies import Bodies, layout
from multibody_estimation.tree.model import Model, Structure

__all__ = ['constants', 'topology', 'with_twin']

KINDS = {'revolute': 0, 'prismatic': 1, 'spherical': 2, 'floating': 3}


def topology(structure: Structure) -> tree_dynamics.Topology:
    """Parents, kinds and places in the vectors, as the kernel takes them."""
    at = layout(structure)
    nb = len(at.parent)
    kind, iq, iv = np.full(nb, 4), np.zeros(nb, int), np.zeros(nb, int)
    for name, group in (('revolute', at.turning), ('prismatic', at.sliding), ('spherical', at.balls), ('floating', at.free)):
        kind[group[0]], iq[group[0]], iv[group[0]] = KINDS[name], group[1], group[2]
    return tree_dynamics.Topology(np.maximum(at.parent, 0), kind, iq, iv, structure.floating)


def constants(model: Model, body: Bodies) -> Any:
    """What the kernel needs to know of each body; (nb, 44).

    Rotation R of the joint frame, R [s]x and R [s]x[s]x for a joint that turns about s (R s for one that slides), position, axis, mass,
    first moment, inertia about the origin (xx, yy, zz, xy, xz, yz), rotor inertia.
    """
    at = layout(model.structure)
    xp = spatial.namespace(body.rotation, body.position, body.mass, body.first, body.second, model.axis, model.armature)
    nb, j = len(at.parent), np.maximum(at.body_joint, 0)
    jointed = len(model.joint_names) > 0
    axis = model.axis[j] if jointed else np.zeros((nb, 3))
    rotor = xp.where(at.body_joint < 0, 0.0, model.armature[j]) if jointed else np.zeros(nb)
    K = skew(axis)
    R, RK = body.rotation, multiply(body.rotation, K)
    slides = np.zeros((nb, 1), bool)
    slides[at.sliding[0]] = True
    along = xp.concatenate([apply(R, axis), xp.zeros((nb, 6))], -1)
    RK_ = xp.where(slides, along, RK.reshape(nb, 9))
    I = body.second
    second = xp.stack([I[:, 0, 0], I[:, 1, 1], I[:, 2, 2], I[:, 0, 1], I[:, 0, 2], I[:, 1, 2]], -1)
    parts = [
        R.reshape(nb, 9),
        RK_,
        multiply(RK, K).reshape(nb, 9),
        body.position,
        axis,
        body.mass[:, None],
        body.first,
        second,
        rotor[:, None],
    ]
    return xp.concatenate(parts, -1)


def with_twin(model: Model, kernel: Callable, twin: Callable, inputs: tuple, *samples: Any) -> Any:
    """``kernel(*inputs, *samples)``, with the derivatives of ``twin(model, *samples)``.

    ``inputs`` is what the kernel takes of the model, derived from it; the numbers of the model that are known stay known in the twin.
    """
    leaves, structure = jax.tree.flatten(model)
    traced = [k for k, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def plain(numbers: list, *samples: Any) -> Any:
        filled = list(leaves)
        for k, number in zip(traced, numbers):
            filled[k] = number
        return twin(jax.tree.unflatten(structure, filled), *samples)

    @jax.custom_jvp
    def call(inputs: tuple, numbers: list, *samples: Any) -> Any:
        return kernel(*inputs, *samples)

    def rule(primals: tuple, tangents: tuple) -> tuple:
        flat, shape = jax.tree.flatten(primals[1:])
        rates = jax.tree.leaves(tangents[1:], is_leaf=_still)
        moving = [k for k, rate in enumerate(rates) if not _still(rate)]

        def along(*parts: Any) -> Any:
            filled = list(flat)
            for k, part in zip(moving, parts):
                filled[k] = part
            return plain(*jax.tree.unflatten(shape, filled))

        value = call(*primals)
        if not moving:
            return value, jnp.zeros_like(value)
        return value, jax.jvp(along, tuple(flat[k] for k in moving), tuple(rates[k] for k in moving))[1]

    call.defjvp(rule, symbolic_zeros=True)
    return call(inputs, [leaves[k] for k in traced], *samples)


def _still(rate: Any) -> bool:
    return isinstance(rate, jax.custom_derivatives.SymbolicZero)
