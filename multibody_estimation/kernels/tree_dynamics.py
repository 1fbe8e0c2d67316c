# SPDX-License-Identifier: Apache-2.0
"""Inverse dynamics, mass matrix and forward dynamics of a tree, for one sample or, under `jax.vmap`, for eight samples at a time.

The JAX twins stand in `tree.dynamics` and `tree.forward_dynamics`; derivatives are theirs.
"""

from typing import Any, NamedTuple

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels import available

__all__ = ['Topology', 'forward_dynamics', 'inverse_dynamics', 'mass_matrix', 'ready']


class Topology(NamedTuple):
    """Structure of nb bodies, parents first, body 0 the base."""

    parent: np.ndarray
    """Parent body; (nb,)."""
    kind: np.ndarray
    """0 revolute, 1 prismatic, 2 spherical, 3 floating, 4 held; (nb,)."""
    iq: np.ndarray
    """First place in the position vector; (nb,)."""
    iv: np.ndarray
    """First place in the velocity vector; (nb,)."""
    floating: bool
    """Whether the base floats."""

    def attributes(self) -> dict:
        """As the kernel takes it."""
        arrays = {name: np.asarray(getattr(self, name), dtype=np.int64) for name in ('parent', 'kind', 'iq', 'iv')}
        return arrays | {'floating': np.bool_(self.floating)}


def ready() -> bool:
    """Whether the compiled kernels serve: they are built, and the numbers are on the processor."""
    return jax.default_backend() == 'cpu' and all(
        available(f'tree_{name}') for name in ('inverse_dynamics', 'mass_matrix', 'forward_dynamics')
    )


def _call(target: str, shape: tuple, topology: Topology, *arguments: Any) -> Any:
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(shape, jnp.float64), vmap_method='expand_dims')
    return call(*(jnp.asarray(x, dtype=jnp.float64) for x in arguments), **topology.attributes())


def inverse_dynamics(topology: Topology, constants: Any, gravity: Any, q: Any, v: Any, a: Any, wrenches: Any) -> Any:
    """Joint torques (nv,); constants (nb, 44), gravity in the world (3,), wrenches on the bodies in their frames (nb, 6) or (0, 6)."""
    return _call('multibody_tree_inverse_dynamics', v.shape, topology, constants, gravity, q, v, a, wrenches)


def mass_matrix(topology: Topology, degrees: int, constants: Any, q: Any) -> Any:
    """Joint-space inertia (nv, nv)."""
    return _call('multibody_tree_mass_matrix', (degrees, degrees), topology, constants, q)


def forward_dynamics(topology: Topology, constants: Any, gravity: Any, q: Any, v: Any, torques: Any, wrenches: Any) -> Any:
    """Accelerations (nv,); arguments as in `inverse_dynamics`."""
    return _call('multibody_tree_forward_dynamics', v.shape, topology, constants, gravity, q, v, torques, wrenches)
