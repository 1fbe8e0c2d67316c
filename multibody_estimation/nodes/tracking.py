# SPDX-License-Identifier: Apache-2.0
"""Estimator mode `track`: states, and the forces that the model does not explain, from a moving window with known parameters."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from sensor_msgs.msg import JointState

from multibody_estimation import tree
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import Fit, track
from multibody_estimation.identification.rehearsal import rehearse_track
from multibody_estimation.msg import LinkWrenches, MultibodyState
from multibody_estimation.nodes.outputs import joint_state, link_wrenches, multibody_state
from multibody_estimation.nodes.transforms import Transforms

__all__ = ['TrackMode']


class TrackMode:
    """Solves the last ``track_seconds`` at ``track_rate``; a solve that overruns its period skips the next, never stacks."""

    def __init__(self, node: Any, robot: Any) -> None:
        self.node, self.settings = node, node.settings
        self.fit: Any = robot
        if self.settings.fit:
            self.fit = Fit.load(Path(self.settings.fit), robot)
        self.robot = self.fit.robot if isinstance(self.fit, Fit) else robot
        self.report: dict[str, Any] = {}
        self.problem: Any = None
        self.stamp = 0
        self.timer: Any = None

    def configure(self) -> None:
        """Compile for the window length."""
        self.problem = rehearse_track(self.robot, self.settings.track_seconds, self.settings.sample_rate)
        self.states = self.node.create_publisher(MultibodyState, '~/state', 10)
        self.joints = self.node.create_publisher(JointState, '~/joint_states', 10)
        self.wrenches = self.node.create_publisher(LinkWrenches, '~/wrenches', 10)
        model = self.robot.model
        self.names = tuple(model.joint_names)
        self.transforms = Transforms(self.node, model) if isinstance(model, tree.Model) else None
        self.links = (
            [model.link_names[i] for i in model.structure.joint_links] if isinstance(model, tree.Model) else list(self.names)
        )

    def activate(self) -> None:
        """Start the timer."""
        self.timer = self.node.create_timer(1.0 / self.settings.track_rate, self.due)

    def deactivate(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.node.destroy_timer(self.timer)
            self.timer = None

    def cleanup(self) -> None:
        """Forget what was compiled."""
        for publisher in (self.states, self.joints, self.wrenches):
            self.node.destroy_publisher(publisher)
        self.problem = None

    def due(self) -> None:
        """Offer the newest window to the worker."""
        if not self.node.worker.offer(self.work):
            self.node.get_logger().warning(
                f'track: a solve took {self.node.worker.seconds:.3f} s or more, longer than its period of {1 / self.settings.track_rate:.3f} s; '
                'this turn is skipped. Set a lower track_rate or shorter track_seconds.', throttle_duration_sec=5.0)  # fmt: skip

    def work(self) -> None:
        """In the worker's thread: solve and publish."""
        needed = self.node.needed(self.robot)
        if any(name not in self.node.rings for name in needed):
            return
        window = self.node.rings.window(self.settings.track_seconds, signals=needed)
        stamp = max(int(window[s.signal].stamps[-1]) for s in self.robot.sensors if len(window[s.signal]))
        if stamp == self.stamp or window.duration < 0.8 * self.settings.track_seconds:
            return
        self.stamp = stamp
        begin = time.perf_counter()
        try:
            fit = track(self.fit, window, weight=self.settings.weight or None, problem=self.problem)
        except EstimationError as error:
            self.report = {'termination': str(error), 'converged': False}
            self.node.get_logger().warning(f'track: {error}', throttle_duration_sec=5.0)
            return
        motion = fit.motion
        k = motion.positions.shape[1] - 1
        state = multibody_state(motion, self.names, stamp, k)
        self.states.publish(state)
        self.joints.publish(joint_state(state))
        self.publish_wrenches(motion, stamp)
        if self.transforms is not None:
            self.transforms.publish(motion.positions[:, k], stamp)
        self.report = {
            'termination': fit.sentence, 'converged': fit.converged, 'iterations': fit.iterations, 'final cost': float(fit.cost),
            'optimization total time [s]': time.perf_counter() - begin, 'skipped': self.node.worker.skipped,
        }  # fmt: skip

    def publish_wrenches(self, motion: Any, stamp: int) -> None:
        """Unexplained joint force of the last full stage as a wrench on the link that the joint carries, along the joint's axis."""
        model = self.robot.model
        if not isinstance(model, tree.Model):
            return
        force, cov = motion.external[:, -1], motion.external_covariance[:, :, -1]
        axes = np.asarray(model.axis)
        along = np.zeros((len(self.names), 6))
        for j, kind in enumerate(model.joint_types):
            along[j, slice(0, 3) if kind == 'prismatic' else slice(3, 6)] = axes[j]
        covariances = np.einsum('ji,jk,j->jik', along, along, np.diag(cov))
        self.wrenches.publish(link_wrenches(stamp, self.links, self.links, along * force[:, None], covariances))
