# SPDX-License-Identifier: Apache-2.0
"""Driver node: publishes what a device measures and passes commands to it.

One thread does nothing but talk to the device; a command that is too old puts zero torque on the motor, a device that falls silent shows
on /diagnostics within a second and is opened again. ``applied_command`` tells what the motor really got, and since when.
"""

import dataclasses
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from rclpy.qos import QoSProfile
from std_srvs.srv import Trigger

from multibody_estimation.errors import EstimationError
from multibody_estimation.hardware.device import load_device, make_device
from multibody_estimation.hardware.driver import Driver
from multibody_estimation.hardware.excitation import Excitation, make_excitation
from multibody_estimation.hardware.watchdog import State, Watchdog
from multibody_estimation.msg import ActuatorCommand
from multibody_estimation.nodes.common import declare, diagnostic, publish_diagnostics, run
from multibody_estimation.nodes.messages import maker

__all__ = ['DriverNode', 'main']

KINDS = {ActuatorCommand.TORQUE: 'torque', ActuatorCommand.VOLTAGE: 'voltage'}


class DriverNode(Node):
    """Thin shell around `hardware.driver.Driver`."""

    def __init__(self) -> None:
        super().__init__('driver')
        self.settings = settings = declare(self, 'driver')
        options = [o for o in settings.options if o]
        known = {f.name for f in dataclasses.fields(load_device(settings.device))}
        given = {
            name: getattr(settings, name)
            for name in ('robot', 'rate', 'port', 'bag', 'speed', 'seed', 'noise', 'dropped')
            if name in known
        }
        given = {name: value for name, value in given.items() if value != ''}
        given |= dict(o.partition('=')[::2] for o in options)
        device = make_device(settings.device, given)
        watchdog = Watchdog(command_timeout=settings.command_timeout, stall_timeout=settings.stall_timeout)
        self.driver = Driver(device, watchdog=watchdog)
        self.makers = {}
        for channel in self.driver.channels:
            kind, make = maker(channel, settings.frame_id)
            self.makers[channel.topic] = (self.create_publisher(kind, channel.topic, QoSProfile(depth=2000)), make)
        self.create_subscription(ActuatorCommand, 'command', self.command, 10)
        self.create_service(Trigger, '~/stop', self.stop)
        self.create_service(Trigger, '~/excite', self.excite)
        self.diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.create_timer(1.0 / settings.status_rate, self.tell)
        self.told = ''
        self.due = time.monotonic() + settings.excitation_delay if settings.excitation else float('inf')
        self.running = True
        self.thread = threading.Thread(target=self.work, name='device', daemon=True)
        self.thread.start()

    def work(self) -> None:
        """Talk to the device until the node ends."""
        try:
            self.wait_for_listeners()
            while self.running:
                if time.monotonic() >= self.due:
                    self.due = float('inf')
                    self.driver.play(self.excitation())
                for sample in self.driver.poll(0.05):
                    publisher, make = self.makers[sample.topic]
                    publisher.publish(make(sample))
                if self.driver.device.finished:
                    time.sleep(0.05)
        except EstimationError as error:
            self.get_logger().error(str(error))
        except Exception as error:
            if self.running:  # not the end of the context under a publisher
                self.get_logger().fatal(f'The thread that talks to the device ended: {type(error).__name__}: {error}')
        finally:
            self.driver.close()

    def wait_for_listeners(self) -> None:
        """Before a replay: wait until everybody listens."""
        if self.settings.device != 'replay':
            return
        publishers = [publisher for publisher, _ in self.makers.values()]
        while self.running and any(p.get_subscription_count() < self.settings.subscribers for p in publishers):
            missing = [p.topic_name for p in publishers if p.get_subscription_count() < self.settings.subscribers]
            self.get_logger().info(f'The replay waits for subscribers of {", ".join(missing)}.', throttle_duration_sec=5.0)
            time.sleep(0.05)
        if self.settings.subscribers:
            time.sleep(0.3)  # the subscribers must have found the publishers too

    def excitation(self) -> Excitation:
        """The motion that the parameters describe."""
        s = self.settings
        limit = min(self.driver.device.actuators.limit or (float('inf'),))
        return make_excitation(
            limit, kind=s.excitation or 'sines', amplitude=s.excitation_amplitude, duration=s.excitation_seconds
        )

    def command(self, message: Any) -> None:
        """Pass a command on; what is refused is told once per reason."""
        stamp = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        now = self.get_clock().now().nanoseconds
        age = (now - stamp) / 1e9 if stamp else 0.0
        if not self.driver.command(
            message.joint_names, message.values, KINDS.get(message.kind, f'kind {message.kind}'), stamp or now, age
        ):
            self.get_logger().warning(self.driver.refusal, throttle_duration_sec=2.0)

    def stop(self, request: Any, response: Any) -> Any:
        """Zero torque, and an end to the excitation."""
        self.driver.stop()
        response.success, response.message = True, 'Zero torque; the excitation, if any, has ended.'
        return response

    def excite(self, request: Any, response: Any) -> Any:
        """Play the excitation that the parameters describe."""
        try:
            excitation = self.excitation()
            self.driver.play(excitation)
            response.success, response.message = True, f'Playing {excitation.kind} for {excitation.duration:g} s.'
        except EstimationError as error:
            response.success, response.message = False, str(error)
        return response

    def tell(self) -> None:
        """Publish the state of the device; a change of state goes to the log too."""
        watchdog = self.driver.watchdog
        level = {State.RUNNING: 'ok', State.WAITING: 'warn'}.get(watchdog.state, 'error')
        said = f'{watchdog.state.value}. {watchdog.reason}'.strip()
        if self.driver.device.finished:
            level, said = 'ok', 'everything was played'
        publish_diagnostics(
            self.diagnostics,
            self,
            [diagnostic(f'{self.get_name()}: device', level, said, self.driver.report(), self.settings.device)],
        )
        if said != self.told:
            # One line per severity: rclpy remembers the severity of a line and refuses another.
            if level == 'ok':
                self.get_logger().info(f'device {self.settings.device}: {said}')
            else:
                self.get_logger().warning(f'device {self.settings.device}: {said}')
            self.told = said

    def close(self) -> None:
        """Zero torque, then let go."""
        self.running = False
        self.thread.join(3.0)


def main(args: list[str] | None = None) -> None:
    """Run the driver."""
    run(DriverNode, args)
