# SPDX-License-Identifier: Apache-2.0
"""Tables and results of the articulated-Gaussian sweep; `wrench_sweep` says what the letters mean."""

from typing import Any, NamedTuple

import numpy as np

from multibody_estimation._jax import jax

__all__ = ['KINDS', 'NODE_FIELDS', 'SENSOR_FIELDS', 'TARGETS', 'Layout', 'Sweep', 'pack', 'unpack']

TARGETS = {'acceleration': 0, 'transmitted': 1, 'external': 2, 'joint': 3}
"""What a sensor of the table tells about."""
KINDS = {
    'external_wrench': 0,
    'acceleration': 1,
    'joint_wrench': 2,
    'joint_acceleration': 3,
    'wrench_multiplier': 4,
    'motion_multiplier': 5,
}
"""Blocks whose covariance can be chosen; the two multipliers give those of the equations' residuals."""

M, W = (6, 6), (6,)
NODE_FIELDS: dict[str, tuple[int, ...]] = {
    'R0': (3, 3), 'p0': (3,), 'c': (3,), 'axis': (3,), 'S': W, 'I': M, 'Sne': M, 'Sa': M,  # geometry, inertia, model noise
    'Jp': M, 'jp': W, 'Lp': M, 'lp': W, 'Cx': M, 'mxp': W, 'pqp': (), 'mqp': (),           # priors
    'J': M, 'j': W, 'B': M, 'Rf': M, 'rho': W, 'Px': M, 'mx': W, 'ld': (), 'pq': (), 'mq': (), 'Lq': M, 'cq': W,  # priors and all sensors
}  # fmt: skip
SENSOR_FIELDS: dict[str, tuple[int, ...]] = {'G': M, 'Gm': M, 'cm': W, 'Inf': M, 'Bs': M}


class Layout(NamedTuple):
    """Structure of a table (hashable): nl nodes, parents first, and the sensors sorted by node."""

    joints: int
    """Length of the joint vectors, n."""
    measurements: int
    """Length of the measurement vector, ny."""
    weights: int
    """Number of weights per sample: one per sensor the user named."""
    known: bool
    """Whether the base's acceleration is given."""
    parent: tuple[int, ...]
    dof: tuple[int, ...]
    """Place in the joint vectors, -1 for a fixed joint."""
    kind: tuple[int, ...]
    """0 fixed, 1 revolute, 2 prismatic."""
    told: tuple[int, ...]
    """Information about the transmitted wrench: 0 none, 1 diagonal, 2 full."""
    loose: tuple[int, ...]
    """0 where the node moves with its parent exactly."""
    first: tuple[int, ...]
    """First sensor of each node, then the number of sensors; length nl + 1."""
    target: tuple[int, ...]
    row: tuple[int, ...]
    """First row of each sensor in the measurement vector."""
    rows: tuple[int, ...]
    weight: tuple[int, ...]
    """Place of each sensor in the weights."""

    def attribute(self) -> np.ndarray:
        head = [len(self.parent), self.joints, self.measurements, len(self.target), int(self.known)]
        return np.concatenate([np.asarray(x, np.int32) for x in (head, *self[4:])]).astype(np.int32)


class Sweep(NamedTuple):
    """Results for N samples."""

    accelerations: jax.Array
    """Proper acceleration (linear, angular) of each node in its frame; (N, nl, 6)."""
    external: jax.Array
    """External wrench (force, moment) on each node; (N, nl, 6)."""
    transmitted: jax.Array
    """Wrench on each node from its parent, zero for the base; (N, nl, 6)."""
    joint: jax.Array
    """Joint acceleration of each node, zero where fixed; (N, nl)."""
    log_determinant: jax.Array
    """log |A| of the information matrix, less what does not depend on the sensors; (N,)."""
    multipliers: jax.Array
    """l and e of each node; (N, nl, 12), or (N, 0, 12)."""
    covariances: jax.Array
    """Of the chosen blocks; (N, ns, 6, 6); of a joint acceleration only [0, 0] counts."""


def pack(layout: Layout, nodes: dict[str, np.ndarray], sensors: dict[str, np.ndarray], base: np.ndarray) -> np.ndarray:
    """Put the tables into one vector, as the kernel reads them."""
    parts = [nodes[f] for f in NODE_FIELDS] + [sensors[f] for f in SENSOR_FIELDS] + [base]
    return np.concatenate([np.asarray(p, dtype=float).ravel() for p in parts])


def unpack(layout: Layout, table: Any) -> dict[str, Any]:
    """Read the tables back by name."""
    out, at = {}, 0
    for fields, count in ((NODE_FIELDS, len(layout.parent)), (SENSOR_FIELDS, len(layout.target))):
        for name, shape in fields.items():
            size = count * int(np.prod(shape))
            out[name] = table[at : at + size].reshape((count, *shape))
            at += size
    out['a0'] = table[at : at + 6]
    return out
