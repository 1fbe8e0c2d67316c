# SPDX-License-Identifier: Apache-2.0
"""Inertias that are possible by construction: the ten log-Cholesky numbers of a link.

Rucker and Wensing, "Smooth parameterization of rigid-body inertia", RA-L 2022: the pseudo-inertia is

    J = [[Sigma, h], [h', m]] = U U',   U = e^alpha [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3], [0, 0, 0, 1]]

with Sigma = tr(I)/2 - I about the link's origin and h = m c. Every choice of the ten numbers is a body that can exist.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from multibody_estimation import tree
from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError

__all__ = ['NAMES', 'from_log_cholesky', 'inertia_names', 'log_cholesky', 'resolve']

NAMES = ('alpha', 'd1', 'd2', 'd3', 's12', 's23', 's13', 't1', 't2', 't3')
KEY = '.log_cholesky.'
LEAVES = (
    'mass', *(f'center_of_mass.{x}' for x in 'xyz'), *(f'inertia.{x}' for x in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')),
)  # fmt: skip


def inertia_names(model: tree.Model) -> list[str]:
    """Names of the ten numbers of every link."""
    return [f'{link}{KEY}{name}' for link in model.link_names for name in NAMES]


def log_cholesky(model: tree.Model, link: str) -> dict[str, float]:
    """The ten numbers of a link as it is; its inertia must be possible."""
    k = model.link_index(link)
    m, c, I = float(model.mass[k]), np.asarray(model.center_of_mass[k]), np.asarray(model.inertia[k])
    about = I + m * (c @ c * np.eye(3) - np.outer(c, c))
    J = np.zeros((4, 4))
    J[:3, :3] = 0.5 * np.trace(about) * np.eye(3) - about
    J[:3, 3] = J[3, :3] = m * c
    J[3, 3] = m
    # U U' with U upper triangular: Cholesky of the matrix read backwards.
    try:
        U = np.linalg.cholesky(J[::-1, ::-1])[::-1, ::-1]
    except np.linalg.LinAlgError:
        raise EstimationError(
            f'{link}: mass {m:g} kg with moments {np.linalg.eigvalsh(I).tolist()} kg m^2: no body can have this inertia. '
            'The mass must be above zero and no moment larger than the sum of the other two.'
        ) from None
    scale = U[3, 3]
    U = U / scale
    entries = [np.log(scale), *np.log(np.diag(U)[:3]), U[0, 1], U[1, 2], U[0, 2], *U[:3, 3]]
    return {f'{link}{KEY}{name}': float(x) for name, x in zip(NAMES, entries)}


def from_log_cholesky(theta: Any) -> dict[str, Any]:
    """Mass, centre of mass and inertia about it, by the last part of their names, from the ten numbers; JAX-traceable."""
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = theta
    e1, e2, e3, scale = jnp.exp(d1), jnp.exp(d2), jnp.exp(d3), jnp.exp(2 * alpha)
    # Centred: with t split off, J about the centre of mass is the product of the upper 3 x 3 part alone.
    xx, yy, zz = e1 * e1 + s12 * s12 + s13 * s13, e2 * e2 + s23 * s23, e3 * e3
    xy, xz, yz = s12 * e2 + s13 * s23, s13 * e3, s23 * e3
    inertia = [yy + zz, -xy, -xz, xx + zz, -yz, xx + yy]
    return dict(zip(LEAVES, [scale, t1, t2, t3, *(scale * x for x in inertia)]))


def resolve(model: tree.Model, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Replace log-Cholesky numbers by the leaves they stand for; those of a link that are not given are its own."""
    links = dict.fromkeys(name.split(KEY)[0] for name in numbers if KEY in name)
    out = {name: x for name, x in numbers.items() if KEY not in name}
    for link in links:
        own = log_cholesky(model, link)
        leaves = from_log_cholesky([numbers.get(name, x) for name, x in own.items()])
        out |= {f'{link}.{leaf}': x for leaf, x in leaves.items()}
    return out
