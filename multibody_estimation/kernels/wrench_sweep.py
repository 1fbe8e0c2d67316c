# SPDX-License-Identifier: Apache-2.0
"""Articulated-Gaussian sweep over a tree: the maximum-a-posteriori dynamics of one sample per lane, compiled and in plain JAX.

Of each node (a link on its joint) the pass up sends to the parent p the wrench it needs, f | a_p ~ N(K a_p + k, P), and what its
subtree tells about the parent's acceleration, information (J, j). With R R' the information about the transmitted wrench,
Q = Lq Lq' = Sa + pq S S' the covariance of the joint's motion, and X the motion transform from the parent:

    G = 1 + R'PR      K'' = K - PR G^-1 R'K     P'' = P - PR G^-1 R'P    J'' = J + K'R G^-1 R'K           the wrench is told
    M = 1 + Lq'J''Lq  to the parent: X'(K'' - K''C J'')X, X'(P'' + K''C K''')X, X'(J'' - J''C J'')X,  C = Lq M^-1 Lq'

The pass down brings acceleration a, multiplier l of the Newton-Euler equation (f = K a + k + P l, external wrench = m - Px l) and
multiplier e of the acceleration equation (ddq = m + pq S'e, pq S = Lq cq). Both work unchanged where covariances are zero.
"""

from functools import partial
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels import available
from multibody_estimation.kernels.wrench_sweep_twin import sweep_twin
from multibody_estimation.kernels.wrench_tables import KINDS, NODE_FIELDS, SENSOR_FIELDS, TARGETS, Layout, Sweep, pack, unpack

__all__ = ['KINDS', 'NODE_FIELDS', 'SENSOR_FIELDS', 'TARGETS', 'Layout', 'Sweep', 'pack', 'sweep', 'sweep_twin', 'unpack']


def sweep(
    layout: Layout, table: Any, position: Any, velocity: Any, base_velocity: Any, measurements: Any, weights: Any = None,
    extra: Any = None, select: tuple[tuple[int, int], ...] = (), multipliers: bool = False,
) -> Sweep:  # fmt: skip
    """Solve N samples.

    ``position`` and ``velocity`` (N, n) [rad, m], ``base_velocity`` (N, 3) angular in the base's frame [rad/s], ``measurements``
    (N, ny), ``weights`` (N, number of sensors), 0 where a sensor is missing. ``extra`` (N, nl, 19) is added to the bias of the
    Newton-Euler and acceleration equations, to the information vector of the acceleration, and to the joint acceleration's mean.
    ``select`` holds pairs (node, kind) of the covariances wanted. Differentiable both ways, through the twin.
    """
    if not available('wrench_sweep'):
        return sweep_twin(layout, table, position, velocity, base_velocity, measurements, weights, extra, select, multipliers)
    n, nl = jnp.shape(position)[0], len(layout.parent)
    weights = np.zeros((0, layout.weights)) if weights is None else jnp.asarray(weights, dtype=float)
    extra = np.zeros((0, nl, 19)) if extra is None else extra
    return _compiled(layout, select, multipliers, n, table, position, velocity, base_velocity, measurements, weights, extra)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _compiled(layout, select, multipliers, n, table, position, velocity, base_velocity, measurements, weights, extra):
    nl = len(layout.parent)
    shapes = [(n, nl, 6), (n, nl, 6), (n, nl, 6), (n, nl), (n,), (n if multipliers else 0, nl, 12), (n, len(select), 6, 6)]
    call = jax.ffi.ffi_call(
        'multibody_wrench_sweep', [jax.ShapeDtypeStruct(s, jnp.float64) for s in shapes], vmap_method='sequential'
    )
    chosen = np.asarray(select, np.int32).reshape(-1)
    more = {'layout': layout.attribute(), 'select': chosen}
    return Sweep(*call(table, position, velocity, base_velocity, measurements, weights, extra, **more))


@_compiled.defjvp
def _compiled_jvp(layout, select, multipliers, n, primals, tangents):
    def twin(table, position, velocity, base_velocity, measurements, weights, extra):
        w, x = weights if weights.size else None, extra if extra.size else None
        out = sweep_twin(layout, table, position, velocity, base_velocity, measurements, w, x, select, multipliers)
        return out if multipliers else out._replace(multipliers=out.multipliers[:0])

    return jax.jvp(twin, primals, tangents)
