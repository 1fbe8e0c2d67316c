# SPDX-License-Identifier: Apache-2.0
"""Recorder node: buffers the configured topics on their header stamps, and writes them as rosbag2 bags.

The buffer always runs. `~/start` and `~/stop` write everything that comes in between to a bag, flushed twice a second; `~/save` writes
what the buffer holds; `~/get_window` says in words what it holds. Files are written below ``data_folder`` only.
"""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node
from std_srvs.srv import Trigger

from multibody_estimation.errors import EstimationError
from multibody_estimation.nodes.common import below, declare, diagnostic, publish_diagnostics, run
from multibody_estimation.nodes.inputs import Inputs
from multibody_estimation.recording.bag_writer import BagWriter
from multibody_estimation.recording.ring import Rings
from multibody_estimation.recording.topics import name_signals
from multibody_estimation.recording.write import write_bag
from multibody_estimation.srv import GetWindow, SaveWindow

__all__ = ['Recorder', 'main']


class Recorder(Node):
    """Thin shell around `recording.ring` and `recording.bag_writer`."""

    def __init__(self) -> None:
        super().__init__('recorder')
        self.settings = declare(self, 'recorder')
        self.rings = Rings(self.settings.buffer_seconds, max_rate=self.settings.max_rate)
        self.bag: BagWriter | None = None
        self.names: dict[str, str] = {}
        self.inputs = Inputs(self, self.settings.topics, self.take, qos=self.settings.qos, raw=True)
        self.status = self.create_publisher(DiagnosticStatus, '~/status', 10)
        self.diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.create_service(Trigger, '~/start', self.start)
        self.create_service(Trigger, '~/stop', self.stop)
        self.create_service(SaveWindow, '~/save', self.save)
        self.create_service(GetWindow, '~/get_window', self.get_window)
        self.create_timer(1.0 / self.settings.status_rate, self.tell)

    def take(self, topic: str, kind: str, message: Any, raw: bytes | None) -> None:
        """Buffer a message, and record it while recording."""
        now = self.get_clock().now().nanoseconds
        if topic not in self.names:
            self.names = name_signals({i.topic: i.kind for i in self.inputs.inputs.values() if i.kind})
        if self.bag is not None and raw is not None:
            self.bag.write(topic, kind, now, raw)
        if 'refused' in self.rings.take(self.names[topic], kind, message, now):
            refusals = [s.refusal for s in self.rings.status() if s.refusal]
            raise EstimationError(self.rings.refusal or refusals[-1])

    def folder(self, name: str) -> Path:
        """Path of a new bag below the data folder; a name made of the time where none was given."""
        return below(self.settings.data_folder, name or datetime.datetime.now().strftime('%Y-%m-%dT%H-%M-%S-%f')[:-3])

    def start(self, request: Any, response: Any) -> Any:
        """Start to record."""
        if self.bag is not None:
            response.success, response.message = False, f'Already recording to {self.bag.path}. Call ~/stop first.'
            return response
        try:
            self.bag = BagWriter(self.folder(''))
            response.success, response.message = True, f'Recording to {self.bag.path}.'
        except (EstimationError, OSError) as error:
            response.success, response.message = False, str(error)
        self.get_logger().info(response.message)
        return response

    def stop(self, request: Any, response: Any) -> Any:
        """Stop to record; the bag is complete when this answers."""
        if self.bag is None:
            response.success, response.message = False, 'Not recording. Call ~/start first.'
            return response
        bag, self.bag = self.bag, None
        try:
            bag.close()
            count = sum(bag.counts.values())
            response.success, response.message = True, f'{count} messages in {bag.path}.'
        except (EstimationError, OSError) as error:
            response.success, response.message = False, f'{bag.path} could not be closed: {error}. What was flushed is readable.'
        self.get_logger().info(response.message)
        return response

    def save(self, request: Any, response: Any) -> Any:
        """Write what the buffer holds."""
        try:
            window = self.rings.window(max(0.0, request.seconds))
            path = self.folder(request.filename)
            write_bag(path, window)
            response.success, response.path = True, str(path)
            response.message_count = sum(len(s) for s in window.signals.values())
            response.message = f'{window.duration:.3f} s written to {path}.'
        except (EstimationError, OSError) as error:
            response.success, response.message = False, str(error)
        return response

    def get_window(self, request: Any, response: Any) -> Any:
        """Say what the buffer holds."""
        try:
            window = self.rings.window(max(0.0, request.seconds))
        except EstimationError as error:
            silent = ' '.join(self.inputs.look(tell=False))
            response.success, response.message = False, f'{error} {silent}'.strip()
            return response
        response.success, response.message, response.duration = True, str(window), window.duration
        response.topics = list(window)
        response.sample_counts = [len(window[n]) for n in window]
        response.rates = [float(np.nan_to_num(window[n].rate)) for n in window]
        return response

    def tell(self) -> None:
        """Publish the state of every input and of the bag."""
        silent = self.inputs.look()
        statuses = self.inputs.statuses(self.get_name())
        held = self.rings.status()
        defects = {f'{s.name} {kind}': n for s in held for kind, n in s.defects.items() if n}
        said = 'recording' if self.bag is not None else 'buffering'
        level = 'warn' if silent else 'ok'
        values: dict[str, Any] = {f'{s.name} samples': s.received for s in held} | defects
        if self.bag is not None:
            values |= {'bag': str(self.bag.path), 'recorded messages': sum(self.bag.counts.values())}
            if self.bag.failure:
                level, said = 'error', self.bag.failure
        own = diagnostic(f'{self.get_name()}: state', level, ' '.join([said, *silent]), values)
        self.status.publish(own)
        publish_diagnostics(self.diagnostics, self, [own, *statuses])

    def close(self) -> None:
        """Close a bag that is being written."""
        if self.bag is not None:
            self.bag.close()


def main(args: list[str] | None = None) -> None:
    """Run the recorder."""
    run(Recorder, args)
