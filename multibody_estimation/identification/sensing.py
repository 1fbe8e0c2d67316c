# SPDX-License-Identifier: Apache-2.0
"""What each kind of sensor would read for a motion; time axis last.

Angles, torques and custom functions take all samples at once. Sensors on links use the general kinematics of `tree`, one sample at a
time, mapped over time.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry import spatial
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.observations import (
    Accelerometer,
    Custom,
    Encoder,
    ForceTorque,
    Gyroscope,
    JointTorque,
    Observation,
    OnLink,
    Position,
)
from multibody_estimation.tree.bodies import true_gravity

__all__ = ['reading']


def reading(sensor: Observation, numbers: Mapping[str, Any], model: Any, q: Any, qd: Any, qdd: Any, lag: Any) -> jax.Array:
    """Predicted signal (k, n) for joint positions, velocities and accelerations (nq, n) at the stages.

    ``lag`` (n,) is the time from the stage to the moment that the sample describes; the estimated part of the delay, if any, stands in
    ``numbers`` and the motion is continued by it.
    """
    lag = lag + sensor.delay - numbers['delay']
    q, qd = q + lag * qd + 0.5 * lag**2 * qdd, qd + lag * qdd
    if isinstance(sensor, Encoder):
        names = dynamics.joint_names(model)
        return jnp.stack([q[names.index(j)] + numbers['offset'][k] for k, j in enumerate(sensor.joints)])
    if isinstance(sensor, JointTorque):
        names, force = dynamics.joint_names(model), dynamics.inverse_dynamics(model, q, qd, qdd)
        return jnp.stack([force[names.index(j)] + numbers['bias'][k] for k, j in enumerate(sensor.joints)])
    if isinstance(sensor, Custom) and sensor.function is not None:
        return sensor.function(model, q, qd, qdd)
    assert isinstance(sensor, OnLink), type(sensor)
    whole, bias = dynamics.as_tree(model), jnp.stack([jnp.asarray(b, dtype=float) for b in numbers['bias']])
    clean = jax.vmap(lambda x, v, a: _on_link(sensor, whole, x, v, a), in_axes=-1, out_axes=-1)(q, qd, qdd)
    return clean + bias[:, None]


def _on_link(sensor: OnLink, model: tree.Model, q: Any, qd: Any, qdd: Any) -> jax.Array:
    k, point, R = model.link_index(sensor.link), jnp.asarray(sensor.position), spatial.rotation_from_rpy(np.asarray(sensor.rpy))
    if isinstance(sensor, Position):
        turn, origin = tree.forward_kinematics(model, q)
        return origin[k] + turn[k] @ point
    w = tree.velocities(model, q, qd)[k, 3:]
    if isinstance(sensor, Gyroscope):
        return R.T @ w
    if isinstance(sensor, Accelerometer):
        a = tree.accelerations(model, q, qd, qdd)[k]
        turn = tree.forward_kinematics(model, q)[0][k]
        at = a[:3] + jnp.cross(a[3:], point) + jnp.cross(w, jnp.cross(w, point))
        return R.T @ (at - turn.T @ true_gravity(model))
    assert isinstance(sensor, ForceTorque), type(sensor)
    return _through_joint(model, k, point, R, q, qd, qdd)


def _through_joint(model: tree.Model, k: int, point: Any, R: Any, q: Any, qd: Any, qdd: Any) -> jax.Array:
    """Wrench onto link k through its joint: Newton-Euler summed over the links beyond, moved to the sensor; (6,)."""
    turn, origin = tree.forward_kinematics(model, q)
    V, A = tree.velocities(model, q, qd), tree.accelerations(model, q, qd, qdd)
    gravity = true_gravity(model)
    here = origin[k] + turn[k] @ point
    force, moment = jnp.zeros(3), jnp.zeros(3)
    for i in range(len(model.link_names)):
        j = i
        while j not in (k, -1):
            j = model.parents[j]
        if j < 0:
            continue
        w, a, c = V[i, 3:], A[i], jnp.asarray(model.center_of_mass)[i]
        I, m = jnp.asarray(model.inertia)[i], jnp.asarray(model.mass)[i]
        f = m * (a[:3] + jnp.cross(a[3:], c) + jnp.cross(w, jnp.cross(w, c)) - turn[i].T @ gravity)
        n = I @ a[3:] + jnp.cross(w, I @ w)
        f, n = turn[i] @ f, turn[i] @ n
        force, moment = force + f, moment + n + jnp.cross(origin[i] + turn[i] @ c - here, f)
    S = turn[k] @ R
    return jnp.concatenate([S.T @ force, S.T @ moment])
