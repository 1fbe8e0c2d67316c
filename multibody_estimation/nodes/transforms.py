# SPDX-License-Identifier: Apache-2.0
"""Link poses on /tf, where tf2_msgs is there (it has no wheel); otherwise nothing, and `doctor` says so."""

from typing import Any

import numpy as np
from geometry_msgs.msg import TransformStamped

from multibody_estimation import tree
from multibody_estimation._jax import jax
from multibody_estimation.geometry import quaternion
from multibody_estimation.nodes.common import to_stamp

__all__ = ['Transforms']


class Transforms:
    """Publishes the pose of every link in its parent's frame."""

    def __init__(self, node: Any, model: tree.Model) -> None:
        self.publisher: Any = None
        try:
            from tf2_msgs.msg import TFMessage
        except ImportError:
            return
        self.message, self.model = TFMessage, model
        self.publisher = node.create_publisher(TFMessage, '/tf', 100)
        self.poses = jax.jit(lambda q: tree.forward_kinematics(model, q))
        self.publish(np.zeros(model.nq), 0)  # compiled here, not in a callback

    def publish(self, position: Any, stamp: int) -> None:
        """Publish the transforms at joint positions (nq,); stamp in ns, 0 only compiles."""
        if self.publisher is None:
            return
        rotations, origins = (np.asarray(x) for x in self.poses(np.asarray(position)))
        if not stamp:
            return
        made = []
        for i, parent in enumerate(self.model.parents):
            if parent < 0:
                continue
            R, p = rotations[parent].T @ rotations[i], rotations[parent].T @ (origins[i] - origins[parent])
            w, x, y, z = np.asarray(quaternion.from_matrix(R)).tolist()
            t = TransformStamped(child_frame_id=self.model.link_names[i])
            t.header.stamp, t.header.frame_id = to_stamp(stamp), self.model.link_names[parent]
            t.transform.translation.x, t.transform.translation.y, t.transform.translation.z = p.tolist()
            t.transform.rotation.w, t.transform.rotation.x, t.transform.rotation.y, t.transform.rotation.z = w, x, y, z
            made.append(t)
        self.publisher.publish(self.message(transforms=made))
