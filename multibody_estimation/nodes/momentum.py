# SPDX-License-Identifier: Apache-2.0
"""Estimator mode `centroidal`: centre of mass, momenta and total wrench of a legged robot, with covariance, by a fixed-lag smoother."""

import time
from typing import Any

import numpy as np
from geometry_msgs.msg import Point, Vector3

from multibody_estimation.centroidal import OnlineCentroidal, load_centroidal_setup
from multibody_estimation.errors import EstimationError
from multibody_estimation.msg import CentroidalState
from multibody_estimation.nodes.common import config_path, to_stamp
from multibody_estimation.window import Window

__all__ = ['CentroidalMode']

SPAN = 0.25
"""Seconds of samples that are made up for when the worker was late; older ones are passed over."""
PARTS = ('center_of_mass', 'linear_momentum', 'angular_momentum', 'force', 'moment')


class CentroidalMode:
    """Feeds `centroidal.OnlineCentroidal` with every encoder sample and what came with it."""

    def __init__(self, node: Any, robot: Any) -> None:
        self.node, self.settings = node, node.settings
        self.report: dict[str, Any] = {}
        self.timer: Any = None
        self.stamp = 0

    def configure(self) -> None:
        """Read the setup and compile."""
        if not self.settings.setup:
            raise EstimationError('mode centroidal needs the parameter setup: the path of a YAML file.')
        self.setup = load_centroidal_setup(config_path(self.settings.setup))
        self.fresh = self.estimator = OnlineCentroidal.configure(self.setup, period=1.0 / self.settings.sample_rate)
        self.newest = self.node.create_publisher(CentroidalState, '~/centroidal', 10)
        self.smoothed = self.node.create_publisher(CentroidalState, '~/centroidal_smoothed', 10)

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
        self.node.destroy_publisher(self.newest)
        self.node.destroy_publisher(self.smoothed)

    def due(self) -> None:
        """Offer the new samples to the worker; a late worker makes up for them next time."""
        self.node.worker.offer(self.work)

    def work(self) -> None:
        """In the worker's thread: step through the samples that came since the last turn."""
        names, rings = self.setup.signals, self.node.rings
        if names.encoders not in rings or any(w not in rings for w in names.wrenches):
            return
        begin = time.perf_counter()
        window = rings.window(SPAN)
        stamps = window[names.encoders].stamps
        new = np.flatnonzero(stamps > self.stamp)
        now = None
        for k in new:
            try:
                self.estimator, now = self.estimator.step(int(stamps[k]), **self.sample(window, int(k)))
                self.stamp = int(stamps[k])
            except EstimationError as error:
                self.stamp = int(stamps[k])
                self.report = {'termination': str(error), 'converged': False}
                self.node.get_logger().warning(f'centroidal: {error}', throttle_duration_sec=5.0)
        if now is None:
            return
        self.newest.publish(self.message(now, now))
        self.smoothed.publish(self.message(now.delayed, now))
        self.report = {'termination': 'solved' if now.converged else 'not converged', 'converged': now.converged, 'samples in this turn': len(new),
                       'optimization total time [s]': time.perf_counter() - begin}  # fmt: skip

    def sample(self, window: Window, k: int) -> dict[str, Any]:
        """What belongs to encoder sample k, as arguments of `step`; None where it did not come."""
        names, body = self.setup.signals, self.setup.body
        encoders = window[names.encoders]
        stamp, half = int(encoders.stamps[k]), 0.5e9 / self.settings.sample_rate

        def nearest(signal: str) -> np.ndarray | None:
            if signal not in window or not len(window[signal]):
                return None
            away = np.abs(window[signal].stamps - stamp)
            i = int(away.argmin())
            return window[signal].values[i] if away[i] <= half else None

        rates = nearest(names.velocities)
        found = {w: nearest(w) for w in names.wrenches}
        given: dict[str, Any] = {
            'positions': dict(zip(encoders.columns, encoders.values[k])),
            'velocities': None if rates is None else dict(zip(window[names.velocities].columns, rates)),
            'wrenches': None if any(v is None for v in found.values()) else found,
        }
        if body.imu:
            given['gyroscope'] = nearest(f'{names.imu}/gyroscope')
        if body.imu_orientation:
            q = nearest(f'{names.imu}/orientation')
            given['orientation'] = None if q is None else q[[3, 0, 1, 2]]  # messages have x y z w
        return given

    def message(self, state: Any, now: Any) -> CentroidalState:
        """A state with its covariance."""
        c, p, L = (state[part].tolist() for part in PARTS[:3])
        message = CentroidalState(
            center_of_mass=Point(x=c[0], y=c[1], z=c[2]), linear_momentum=Vector3(x=p[0], y=p[1], z=p[2]),
            angular_momentum=Vector3(x=L[0], y=L[1], z=L[2]), contacts=list(now.standing), standing=[bool(s) for s in now.standing.values()],
        )  # fmt: skip
        f, t = message.wrench.force, message.wrench.torque
        f.x, f.y, f.z, t.x, t.y, t.z = state.wrench.tolist()
        order = np.concatenate([np.arange(state.layout[part].start, state.layout[part].stop) for part in PARTS])
        message.covariance = state.covariance[np.ix_(order, order)].ravel()
        message.header.stamp, message.header.frame_id = to_stamp(state.stamp), 'world'
        return message
