# SPDX-License-Identifier: Apache-2.0
"""Links that fixed joints hold together are one body: the algorithms run over bodies, the answers are about links.

`layout` derives index arrays from a model's structure, once; `bodies` sums the inertias of each body's links. Both depend on
no joint position, so a batch computes them once, and a compiled program with a known model not at all.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from multibody_estimation._jax import jax
from multibody_estimation.geometry import spatial
from multibody_estimation.geometry.spatial import apply, multiply
from multibody_estimation.tree.model import DEGREES, POSITIONS, Model, Structure

__all__ = ['Bodies', 'Layout', 'bodies', 'layout']


class Layout(NamedTuple):
    """Index arrays of nb bodies and nv degrees of freedom; body 0 is the base, parents come before children."""

    link_body: np.ndarray
    """Body of each link; (nl,)."""
    body_link: np.ndarray
    """Link whose frame is the body's; (nb,)."""
    body_joint: np.ndarray
    """Moving joint of each body, -1 for the base; (nb,)."""
    parent: np.ndarray
    """Parent body, -1 for the base; (nb,)."""
    fixed_jumps: tuple[np.ndarray, ...]
    """For each round of doubling: the link each link's pose is taken on to, within its body; (nl,)."""
    body_jumps: tuple[np.ndarray, ...]
    """The same for bodies, towards the base; (nb,)."""
    gather: np.ndarray
    """1 where link l belongs to body b; (nb, nl)."""
    dof_body: np.ndarray
    """Body that each degree of freedom moves; (nv,)."""
    moves: np.ndarray
    """1 where degree of freedom d moves body b: it lies on the way from b to the base; (nb, nv)."""
    below: np.ndarray
    """1 where body c is body b or beyond it; (nb, nb)."""
    turning: tuple[np.ndarray, ...]
    """Bodies on revolute joints, with their places in the position and velocity vector."""
    sliding: tuple[np.ndarray, ...]
    """The same for prismatic joints."""
    balls: tuple[np.ndarray, ...]
    """The same for spherical joints; first place of each."""
    free: tuple[np.ndarray, ...]
    """The same for floating joints other than the base; first place of each."""


@lru_cache(maxsize=256)
def layout(structure: Structure) -> Layout:
    """Derive the index arrays."""
    nl = len(structure.link_names)
    joint_of = {link: j for j, link in enumerate(structure.joint_links)}
    link_body = np.zeros(nl, int)
    body_link: list[int] = []
    for link in range(nl):  # parents come first
        if link == 0 or link in joint_of:
            link_body[link] = len(body_link)
            body_link.append(link)
        else:
            link_body[link] = link_body[structure.parents[link]]
    nb = len(body_link)
    parent = np.array([-1] + [link_body[structure.parents[k]] for k in body_link[1:]], int)
    body_joint = np.array([-1] + [joint_of[k] for k in body_link[1:]], int)

    fixed = [k if link_body[k] == i and body_link[i] == k else structure.parents[k] for k, i in enumerate(link_body)]
    q, v, starts = 7 * structure.floating, 6 * structure.floating, []
    for kind in structure.joint_types:
        starts.append((q, v))
        q, v = q + POSITIONS[kind], v + DEGREES[kind]
    dof_body = np.zeros(v, int)
    groups: dict[str, list] = {kind: [] for kind in DEGREES}
    for b in range(1, nb):
        j = body_joint[b]
        kind, (at_q, at_v) = structure.joint_types[j], starts[j]
        dof_body[at_v : at_v + DEGREES[kind]] = b
        groups[kind].append((b, at_q, at_v))
    below = np.eye(nb)
    for b in range(nb - 1, 0, -1):
        below[parent[b]] += below[b]
    columns = {kind: tuple(np.array(g, int).reshape(-1, 3).T) for kind, g in groups.items()}
    return Layout(
        link_body, np.array(body_link), body_joint, parent, _doubling(np.array(fixed)), _doubling(np.maximum(parent, 0)),
        (link_body[None] == np.arange(nb)[:, None]).astype(float), dof_body, below.T[:, dof_body], below,
        columns['revolute'], columns['prismatic'], columns['spherical'], columns['floating'],
    )  # fmt: skip


def _doubling(to: np.ndarray) -> tuple[np.ndarray, ...]:
    """Rounds of pointer jumping until every element has arrived: log2(depth) vector steps instead of depth."""
    rounds: list[np.ndarray] = []
    while (to[to] != to).any() or not rounds:
        rounds.append(to)
        to = to[to]
    return tuple(rounds)


def compose(jumps: tuple[np.ndarray, ...], rotation: Any, position: Any) -> tuple[Any, Any]:
    """Chain poses along the jumps; an element that has arrived jumps to itself and must hold the identity pose there."""
    for to in jumps:
        position = position[to] + apply(rotation[to], position)
        rotation = multiply(rotation[to], rotation)
    return rotation, position


class Bodies(NamedTuple):
    """Numbers of nb bodies in their own frames, and of the links in them."""

    rotation: Any
    """Of each body's joint frame in the parent body; (nb, 3, 3)."""
    position: Any
    """(nb, 3) [m]."""
    mass: Any
    """(nb,) [kg]."""
    first: Any
    """First moment m c; (nb, 3) [kg m]."""
    second: Any
    """Inertia about the body frame's origin; (nb, 3, 3) [kg m^2]."""
    link_rotation: Any
    """Of each link in its body; (nl, 3, 3)."""
    link_position: Any
    """(nl, 3) [m]."""
    gravity: Any
    """In the world, tilt included; (3,) [m/s^2]."""


def bodies(model: Model) -> Bodies:
    """Sum up the links of each body; kept with a model whose numbers are known."""
    kept = getattr(model, '_bodies', None)
    if kept is None:
        kept = _bodies(model)
        if not any(isinstance(x, jax.Array) for x in kept):
            object.__setattr__(model, '_bodies', kept)
    return kept


def hold_bodies(model: Model) -> None:
    """Keep the bodies of a model with traced numbers: for a model made within a trace, before a loop that needs them at each turn."""
    object.__setattr__(model, '_bodies', _bodies(model))


def _bodies(model: Model) -> Bodies:
    at = layout(model.structure)
    xp = spatial.namespace(model.placement, model.placement_rpy)
    R = spatial.rotation_from_rpy(model.placement_rpy)
    starts = (at.body_link[at.link_body] == np.arange(len(at.link_body)))[:, None]  # link frames that are body frames
    link_R, link_p = compose(
        at.fixed_jumps,
        xp.where(starts[..., None], np.eye(3), R),
        xp.where(starts, 0.0, model.placement),
    )
    to = np.maximum(np.array(model.parents)[at.body_link], 0)
    root = (np.arange(len(at.body_link)) == 0)[:, None]
    rotation = xp.where(root[..., None], np.eye(3), multiply(link_R[to], R[at.body_link]))
    position = xp.where(root, 0.0, link_p[to] + apply(link_R[to], model.placement[at.body_link]))

    c = link_p + apply(link_R, model.center_of_mass)
    about = multiply(multiply(link_R, model.inertia), link_R.swapaxes(-1, -2))
    m = model.mass
    S = spatial.skew(c)
    about = about - m[:, None, None] * multiply(S, S)
    return Bodies(
        rotation, position, at.gather @ m, at.gather @ (m[:, None] * c),
        (at.gather @ about.reshape(-1, 9)).reshape(-1, 3, 3), link_R, link_p, true_gravity(model),
    )  # fmt: skip


def true_gravity(model: Model) -> Any:
    """Gravity in the world with its tilt, Rx(tilt_x) Ry(tilt_y) g; (3,) [m/s^2]."""
    xp = spatial.namespace(model.gravity, model.gravity_tilt)
    (sx, sy), (cx, cy) = xp.sin(model.gravity_tilt), xp.cos(model.gravity_tilt)
    x, y, z = model.gravity[0], model.gravity[1], model.gravity[2]
    x, z = cy * x + sy * z, cy * z - sy * x
    return xp.stack([x, cx * y - sx * z, sx * y + cx * z])
