# SPDX-License-Identifier: Apache-2.0
"""Hold a tree by another link: the joints between the old root and the new base are turned round.

A turned joint keeps its name, its coordinate and its sign: q is still the old child's position on the old parent. With T the joint's
placement and X(q) its motion, the old child stands at T X(q) in the old parent, hence the old parent at X(q)^-1 T^-1 in the old
child. The axis of a turned joint does not pass through the origin of its new child in general: then a massless link
``<joint>_turned`` stands on the axis and holds the new child by a fixed joint, so that every link keeps its own frame.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from multibody_estimation.geometry.spatial import rotation_from_rpy, rpy_from_rotation

__all__ = ['rebase']


def rebase(links: Sequence[Any], joints: Sequence[Any], sensors: Sequence[Any], base: str) -> tuple[list, list, list]:
    """Parts of the same mechanism, held by the link ``base``; takes and gives `Link`, `Joint` and `Sensor` of `build`.

    A spherical or floating joint that is turned round has no sign to keep: its coordinates are then those of its new child in its
    new parent. A sensor stays where it is: that of a turned joint on the link that was the child.
    """
    carried = {j.child: j for j in joints}
    turned, at = {}, base
    while at in carried:
        turned[carried[at].name] = carried[at]
        at = carried[at].parent
    new_links, new_joints = list(links), []
    for joint in joints:
        if joint.name not in turned:
            new_joints.append(joint)
            continue
        link, pair = _turn(joint)
        new_links += link
        new_joints += pair
    # A force/torque sensor's frame is fixed in the link that was its joint's child, and so it remains.
    held = {name: j.child for name, j in turned.items()}
    new_sensors = [
        replace(s, link=s.link or held[s.on], acts_on=s.acts_on or held[s.on]) if s.on in held and s.type == 'force_torque' else s
        for s in sensors
    ]
    return new_links, new_joints, new_sensors


def _turn(joint: Any) -> tuple[list, list]:
    """The turned joint, with a massless link on its axis and the fixed joint behind it where they are needed."""
    from multibody_estimation.tree.build import Link  # build imports this file

    R, p = rotation_from_rpy(np.array(joint.rpy, dtype=float)), np.array(joint.position, dtype=float)
    back, away = tuple(rpy_from_rotation(R.T)), tuple(float(x) for x in -R.T @ p)
    axis = -np.array(joint.axis, dtype=float)
    straight = joint.type in ('fixed', 'prismatic') or (joint.type in ('revolute', 'continuous') and not p.any())
    if straight:  # X(q)^-1 T^-1 = T^-1 exp(-R a q): the same joint seen from the new child
        return [], [replace(joint, parent=joint.child, child=joint.parent, position=away, rpy=back, axis=tuple(R @ axis))]
    middle = f'{joint.name}_turned'
    moving = replace(joint, parent=joint.child, child=middle, position=(0.0, 0.0, 0.0), rpy=(0.0, 0.0, 0.0), axis=tuple(axis))
    fixed = type(joint)(middle, middle, joint.parent, 'fixed', position=away, rpy=back)
    return [Link(middle)], [moving, fixed]
