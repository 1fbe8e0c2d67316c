# SPDX-License-Identifier: Apache-2.0
"""Estimator mode `wrench`: external wrenches of the contact links, joint torques and accelerations, with covariance, sample by sample."""

import time
from array import array
from typing import Any

import numpy as np
from geometry_msgs.msg import WrenchStamped

from multibody_estimation import tree
from multibody_estimation.errors import EstimationError
from multibody_estimation.msg import LinkWrenches, MultibodyState
from multibody_estimation.nodes.common import config_path, to_stamp
from multibody_estimation.nodes.outputs import link_wrenches
from multibody_estimation.srv import SetContacts
from multibody_estimation.wrench import WrenchEstimator, load_wrench_setup, samples_of

__all__ = ['WrenchMode']

SPAN = 0.25
"""Seconds of the newest samples that are looked at: enough for the rates and accelerations of the joints."""


class WrenchMode:
    """Asks `wrench.WrenchEstimator` about the newest sample, at ``track_rate``."""

    def __init__(self, node: Any, robot: Any) -> None:
        self.node, self.settings = node, node.settings
        self.report: dict[str, Any] = {}
        self.timer: Any = None
        self.stamp = 0
        self.truth: dict[str, np.ndarray] = {}

    def configure(self) -> None:
        """Read the robot and the setup, compile, and say what can be told."""
        if not self.settings.setup or not self.settings.urdf:
            raise EstimationError('mode wrench needs the parameters urdf and setup; config/icub.yaml shows them.')
        model = tree.load_urdf(tree.find_urdf(self.settings.urdf), floating=True)
        setup = load_wrench_setup(config_path(self.settings.setup), model)
        self.estimator = WrenchEstimator(model, setup)
        for sentence in str(self.estimator.observability).splitlines():
            self.node.get_logger().info(sentence)
        self.wrenches = self.node.create_publisher(LinkWrenches, '~/wrenches', 10)
        self.states = self.node.create_publisher(MultibodyState, '~/state', 10)
        self.single: dict[str, Any] = {}
        self._publishers()

    def _publishers(self) -> None:
        for link in self.estimator.setup.contacts:
            if link not in self.single:
                self.single[link] = self.node.create_publisher(WrenchStamped, f'~/wrench/{link}', 10)

    def activate(self) -> None:
        """Start the timer and the service."""
        self.timer = self.node.create_timer(1.0 / self.settings.track_rate, self.due)
        self.service = self.node.calls.serve(SetContacts, '~/set_contacts', self.set_contacts)
        self.subscription = None
        if self.settings.truth_topic:
            self.subscription = self.node.create_subscription(LinkWrenches, self.settings.truth_topic, self.take_truth, 10)

    def deactivate(self) -> None:
        """Stop both."""
        if self.timer is not None:
            self.node.destroy_timer(self.timer)
            self.node.calls.node.destroy_service(self.service)
            if self.subscription is not None:
                self.node.destroy_subscription(self.subscription)
            self.timer = None

    def cleanup(self) -> None:
        """Forget what was compiled."""
        for publisher in (self.wrenches, self.states, *self.single.values()):
            self.node.destroy_publisher(publisher)

    def take_truth(self, message: Any) -> None:
        """Remember what a simulation says."""
        self.truth = {n: _six(w) for n, w in zip(message.link_names, message.wrenches)}

    def set_contacts(self, request: Any, response: Any) -> Any:
        """Choose the links on which the world may act; runs in a thread of its own, for it may compile."""
        done: list[tuple[bool, str]] = []

        def job() -> None:
            try:
                done.append((True, str(self.estimator.set_contacts(list(request.links)))))
                self._publishers()
            except EstimationError as error:
                done.append((False, str(error)))

        end = time.monotonic() + 10.0
        while not self.node.worker.offer(job) and time.monotonic() < end:
            time.sleep(0.002)
        while not done and time.monotonic() < end:
            time.sleep(0.01)
        response.success, response.message = done[0] if done else (False, 'The estimator is too busy; set a lower track_rate.')
        return response

    def due(self) -> None:
        """Offer the newest sample to the worker."""
        if not self.node.worker.offer(self.work):
            self.node.get_logger().warning(
                'wrench: the last sample is still being solved; this turn is skipped.', throttle_duration_sec=5.0
            )

    def work(self) -> None:
        """In the worker's thread: estimate and publish."""
        rings, program = self.node.rings, self.estimator.program
        if self.estimator.setup.positions not in rings:
            return
        begin = time.perf_counter()
        window = rings.window(SPAN)
        stamp = int(window[self.estimator.setup.positions].stamps[-1])
        if stamp == self.stamp or window.duration < 0.8 * SPAN:
            return
        self.stamp = stamp
        try:
            data = samples_of(program, window)
            # The sensors of the newest instant may still be on their way: take the newest one that has the most.
            there = np.isfinite(data.measurements[-5:]).sum(axis=1)
            k = len(data.time) - 1 - int(np.argmax(there[::-1]))
            y = data.measurements[k]
            given = {name: y[at] for name, at in self.estimator.setup.rows.items() if np.isfinite(y[at]).all()}
            sample = self.estimator.step(given, data.position[k], data.velocity[k], data.base_velocity[k])
        except EstimationError as error:
            self.report = {'termination': str(error), 'converged': False}
            self.node.get_logger().warning(f'wrench: {error}', throttle_duration_sec=5.0)
            return
        self.publish(sample, data.position[k], data.velocity[k], window.start + round(float(data.time[k]) * 1e9))
        self.report = {
            'termination': ' '.join(sample.notes) or 'solved', 'optimization total time [s]': time.perf_counter() - begin,
            'missing sensors': ', '.join(sample.missing), 'outliers': ', '.join(sample.outliers),
        } | self.off()  # fmt: skip

    def publish(self, sample: Any, position: np.ndarray, velocity: np.ndarray, stamp: int) -> None:
        """Publish everything with its covariance."""
        links = list(self.estimator.setup.contacts)
        values = np.array([sample.wrench(link) for link in links]).reshape(-1, 6)
        covariances = np.array([sample.covariance('external_wrench', link) for link in links]).reshape(-1, 6, 6)
        self.last = dict(zip(links, values))
        self.wrenches.publish(link_wrenches(stamp, links, links, values, covariances))
        for link, w in self.last.items():
            message = WrenchStamped()
            message.header.stamp, message.header.frame_id = to_stamp(stamp), link
            f, t = message.wrench.force, message.wrench.torque
            f.x, f.y, f.z, t.x, t.y, t.z = w.tolist()
            self.single[link].publish(message)
        joints = self.estimator.program.joint_names
        state = MultibodyState(joint_names=list(joints))
        state.header.stamp = to_stamp(stamp)
        state.position, state.velocity = array('d', position), array('d', velocity)
        state.effort, state.acceleration = array('d', sample.joint_torques), array('d', sample.joint_accelerations)
        state.effort_std_devs = array('d', [float(sample.deviation('joint_torque', j)[0]) for j in joints])
        state.acceleration_std_devs = array('d', [float(sample.deviation('joint_acceleration', j)[0]) for j in joints])
        self.states.publish(state)

    def off(self) -> dict[str, Any]:
        """Estimate beside truth, where a simulation tells it."""
        told = {}
        for link, w in self.last.items():
            if link in self.truth:
                told[f'{link} force [N]'] = f'{np.linalg.norm(w[:3]):.2f}, truth {np.linalg.norm(self.truth[link][:3]):.2f}'
        return told


def _six(wrench: Any) -> np.ndarray:
    f, t = wrench.force, wrench.torque
    return np.array([f.x, f.y, f.z, t.x, t.y, t.z])
