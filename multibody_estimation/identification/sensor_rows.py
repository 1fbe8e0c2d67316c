# SPDX-License-Identifier: Apache-2.0
"""Rows of one sensor in the joint-space form: whitened residuals and their Jacobians."""

from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.sensing import reading

__all__ = ['sensor_rows', 'tangents']


def tangents(f: Any, *at: Any) -> jax.Array:
    """Columns df/d(each entry of each argument), one forward pass each: (rows, columns, m)."""
    columns = []
    for a, x in enumerate(at):
        for i in range(x.shape[0]):
            seed = jnp.zeros_like(x).at[i].set(1.0)
            columns.append(jax.jvp(lambda y, a=a: f(*at[:a], y, *at[a + 1 :]), (x,), (seed,))[1])
    return jnp.stack(columns, axis=1)


def sensor_rows(form: Any, k: int, q: Any, z: Any, data: dict, jacobian: bool = True) -> tuple[Any, Any, int]:
    """Whitened residual of sensor k, its Jacobian (None if not wanted) and the number of stages that a row spans.

    Residual (rows, n), Jacobian (rows, nq + p, n) for encoders whose samples lie at stages; (rows, n-2) and (rows, 3 nq + p, n-2) for
    all others, which see velocities too.
    """
    sensor = form.binding.robot.sensors[k]
    at_stage = isinstance(sensor, Encoder) and form.at_stage[k] and not form.binding.estimates(f'{sensor.signal}.delay')
    r, rows, w, width = (_at_stage if at_stage else _in_window)(form, k, q, z, data, jacobian)
    turn = jnp.asarray(np.array(form.turns[k], dtype=float))[:, None]
    r = (r - turn * 2 * jnp.pi * jnp.round(r / (2 * jnp.pi))) * w
    return r, rows * w[:, None] if jacobian else None, width


def _at_stage(form: Any, k: int, q: Any, z: Any, data: dict, jacobian: bool) -> tuple[Any, Any, Any, int]:
    y, w, _ = data['samples'][k]
    sensor, p = form.binding.robot.sensors[k], form.columns
    index = np.array([dynamics.joint_names(form.binding.robot.model).index(j) for j in sensor.joints])

    def offsets(z):
        parts = form.binding.apply(form.binding.values(z))[2][k]['offset']
        return jnp.stack([jnp.asarray(x, dtype=float) for x in parts])

    rows = None
    if jacobian:
        rows = jnp.zeros((len(index), form.nq + p, q.shape[1])).at[np.arange(len(index)), index].set(1.0)
        if p:
            rows = rows.at[:, form.nq :].set(jax.jacfwd(offsets)(z)[:, :, None])
    return q[index] + offsets(z)[:, None] - y, rows, w, 1


def _in_window(form: Any, k: int, q: Any, z: Any, data: dict, jacobian: bool) -> tuple[Any, Any, Any, int]:
    y, w, lag = data['samples'][k]
    sensor, nq = form.binding.robot.sensors[k], form.nq
    position, v, a = form.motion(q, data)

    def predict(position, v, a, z):
        model, _, numbers = form.binding.apply(form.binding.values(z))
        return reading(sensor, numbers[k], model, position, v, a, lag[1:-1])

    rows = None
    if jacobian:
        J = tangents(lambda x, y, w: predict(x, y, w, z), position, v, a)
        Jp = tangents(lambda x: predict(position, v, a, x), z) if form.columns else jnp.zeros((J.shape[0], 0, J.shape[2]))
        rows = form.window_columns(J[:, :nq], J[:, nq : 2 * nq], J[:, 2 * nq :], Jp, data['step'])
    return predict(position, v, a, z) - y[:, 1:-1], rows, w[:, 1:-1] * data['linked'], 3
