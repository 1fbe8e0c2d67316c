# SPDX-License-Identifier: Apache-2.0
"""Nodes of the sweep: the model's links seen from any base link, each on one joint, with links split where a sensor sits inside them.

A joint's motion is written in the new child's frame, which stays where the model put it. A joint that the base turned round has an
axis that does not pass through its child's origin: it turns about the point c, so S = (c x u, u), R(q) = R0 Rot(u, q) and
p(q) = p0 - R(q) c. Massless links at the end of fixed joints are frames of the link that holds them, not nodes.
"""

from dataclasses import dataclass, field

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.geometry.spatial import rotation_from_rpy, skew
from multibody_estimation.tree.model import Model
from multibody_estimation.wrench.settings import SubMass, WrenchSetup

__all__ = ['Node', 'Nodes', 'build_nodes', 'spatial_inertia']

KINDS = {'fixed': 0, 'revolute': 1, 'prismatic': 2}


@dataclass(eq=False)
class Node:
    """A rigid part on its joint; arrays in its own frame."""

    link: int
    """Place in `Nodes.links`."""
    parent: int
    kind: int = 0
    """0 fixed, 1 revolute, 2 prismatic."""
    dof: int = -1
    rotation: np.ndarray = field(default_factory=lambda: np.eye(3))
    position: np.ndarray = field(default_factory=lambda: np.zeros(3))
    center: np.ndarray = field(default_factory=lambda: np.zeros(3))
    axis: np.ndarray = field(default_factory=lambda: np.zeros(3))
    motion: np.ndarray = field(default_factory=lambda: np.zeros(6))
    inertia: np.ndarray = field(default_factory=lambda: np.zeros((6, 6)))
    inner: bool = False
    """Whether it is the part of a split link next to its joint."""
    outer: bool = False
    """Whether it is the rest of a split link."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """All nodes, parents first, and where the model's names are among them."""

    nodes: tuple[Node, ...]
    links: tuple[int, ...]
    """Links of the model that are bodies; arrays by link are in this order."""
    frames: dict[int, tuple[int, np.ndarray, np.ndarray]]
    """Of every link of the model: place in ``links`` of the one that holds it, its rotation and position there."""
    of_link: tuple[int, ...]
    """Node that carries the external wrench and the sensors of each link."""
    joint_of_link: tuple[int, ...]
    """Node on which the joint of each link acts; differs from ``of_link`` where a link is split. 0 for the base."""
    of_joint: tuple[int, ...]
    """Node of each moving joint."""
    joint_names: tuple[str, ...]
    """Joint that carries each link, seen from the base; '' for the base; by link."""
    turned: tuple[bool, ...]
    """Whether that joint was turned round; by link."""


def spatial_inertia(mass: float, center_of_mass: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """6x6 inertia at the frame's origin, linear part first."""
    c = skew(np.asarray(center_of_mass, dtype=float))
    inertia = np.asarray(inertia, dtype=float)
    inertia = np.diag(inertia) if inertia.shape == (3,) else inertia
    return np.block([[mass * np.eye(3), -mass * c], [mass * c, inertia - mass * c @ c]])


def build_nodes(model: Model, setup: WrenchSetup) -> Nodes:
    """Re-root the tree at the setup's base and split the links that hold a sensor with sub-mass."""
    s = model.structure
    for name, kind in zip(s.joint_names, s.joint_types):
        if kind not in KINDS:
            raise EstimationError(
                f"Joint '{name}' is {kind}: the wrench estimate takes revolute, prismatic and fixed joints. Replace it by a chain of those."
            )
    base = model.link_index(setup.base) if setup.base else 0
    moving = {link: j for j, link in enumerate(s.joint_links)}
    neighbours: list[list[int]] = [[] for _ in s.link_names]
    for link, parent in enumerate(s.parents):
        if parent >= 0:
            neighbours[link].append(parent)
            neighbours[parent].append(link)
    came, order, stack = {base: -1}, [], [base]
    while stack:
        link = stack.pop()
        order.append(link)
        for n in reversed(neighbours[link]):
            if n != came[link]:
                came[n] = link
                stack.append(n)
    split = _sub_masses(model, setup, base)
    holders: dict[int, int] = {}
    children = {link: sum(came[n] == link for n in came) for link in order}
    for link in reversed(order):  # frames at the ends first, then those that only held frames
        joint = came[link] if s.parents[link] != came[link] else link
        bodiless = not float(model.mass[link]) and not np.any(np.asarray(model.inertia[link]))
        if link != base and bodiless and joint not in moving and not children[link] and link not in split:
            holders[link] = came[link]
            children[came[link]] -= 1
    links = tuple(link for link in range(len(s.link_names)) if link not in holders)
    place = {link: k for k, link in enumerate(links)}
    count = len(links)
    nodes: list[Node] = []
    of_link, joint_of_link, of_joint = [0] * count, [0] * count, [0] * len(s.joint_names)
    joint_names, turned = [''] * count, [False] * count
    frames = {link: (place[link], np.eye(3), np.zeros(3)) for link in links}
    for link in order:
        from_ = came[link]
        back = from_ >= 0 and s.parents[link] != from_
        carrier = from_ if back else link  # the link that the model says the joint carries
        node = Node(place.get(link, -1), -1 if from_ < 0 else of_link[frames[from_][0]])
        if from_ >= 0:
            _place(model, node, carrier, back, moving)
        if link in holders:
            host, R, p = frames[from_]
            frames[link] = (host, R @ node.rotation, p + R @ node.position)
            continue
        k = place[link]
        node.inertia = spatial_inertia(
            float(model.mass[link]), np.asarray(model.center_of_mass[link]), np.asarray(model.inertia[link])
        )
        if from_ >= 0:
            turned[k], joint_names[k] = back, s.link_joint_names[carrier]
            if carrier in moving:
                of_joint[moving[carrier]] = len(nodes)
        joint_of_link[k] = len(nodes)
        nodes.append(node)
        if link in split:
            part = split[link]
            rest = Node(k, len(nodes) - 1, inertia=node.inertia - part, outer=True)
            node.inertia, node.inner = part, True
            nodes.append(rest)
        of_link[k] = len(nodes) - 1
    return Nodes(
        tuple(nodes), links, frames, tuple(of_link), tuple(joint_of_link), tuple(of_joint), tuple(joint_names), tuple(turned)
    )


def _place(model: Model, node: Node, carrier: int, turned: bool, moving: dict[int, int]) -> None:
    R, p = (
        rotation_from_rpy(np.asarray(model.placement_rpy[carrier], dtype=float)),
        np.asarray(model.placement[carrier], dtype=float),
    )
    node.rotation, node.position = (R.T, -R.T @ p) if turned else (R, p)
    if carrier not in moving:
        return
    j = moving[carrier]
    kind = model.joint_types[j]
    axis = np.asarray(model.axis[j], dtype=float)
    node.axis = -R @ axis if turned else axis
    node.kind, node.dof = KINDS[kind], j
    if kind == 'prismatic':
        node.motion = np.r_[node.axis, np.zeros(3)]
    else:
        node.center = p if turned else np.zeros(3)
        node.position = node.position + node.rotation @ node.center
        node.motion = np.r_[np.cross(node.center, node.axis), node.axis]


def _sub_masses(model: Model, setup: WrenchSetup, base: int) -> dict[int, np.ndarray]:
    """Spatial inertia of the inner part of each link that is to be split."""
    found: dict[int, np.ndarray] = {}
    for sensor in setup.sensors:
        part = sensor.sub_mass
        if part is None:
            continue
        if sensor.type != 'force_torque':
            raise EstimationError(f'{sensor.where}: only a force_torque sensor has a sub_mass.')
        if sensor.on not in model.link_names:
            raise EstimationError(
                f"{sensor.where}: with sub_mass it sits inside a link; the model has no link '{sensor.on}'.{did_you_mean(sensor.on, model.link_names)}"
            )
        link = model.link_index(sensor.on)
        if link == base:
            raise EstimationError(
                f"{sensor.where}: link '{sensor.on}' is the base, there is no joint before the sensor. Choose another base."
            )
        if link in found:
            raise EstimationError(
                f"{sensor.where}: link '{sensor.on}' already has a force/torque sensor with sub_mass; one per link is supported."
            )
        found[link] = _checked(part, float(model.mass[link]), sensor.where)
    return found


def _checked(part: SubMass, mass: float, where: str) -> np.ndarray:
    if not 0 <= part.mass <= mass:
        raise EstimationError(f'{where}: its sub_mass of {part.mass} kg must lie between 0 and the mass of the link, {mass} kg.')
    return spatial_inertia(part.mass, np.asarray(part.center_of_mass, dtype=float), np.asarray(part.inertia, dtype=float))
