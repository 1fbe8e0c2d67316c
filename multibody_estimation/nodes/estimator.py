# SPDX-License-Identifier: Apache-2.0
"""Estimator node (lifecycle): buffers its inputs and runs one of the solvers on them.

configure   makes the robot, compiles the solver for the window length at hand, subscribes nothing yet
activate    subscribes, takes goals and calls or starts its timer, and says within two seconds which input is missing and why
deactivate  stops both; the buffer is forgotten on cleanup

Solves run in one worker thread; the executor only copies samples. Modes: see MODES.
"""

from importlib import import_module
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from multibody_estimation import robots
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification.robot import Robot
from multibody_estimation.nodes.calls import SlowCalls
from multibody_estimation.nodes.common import declare, diagnostic, publish_diagnostics, run
from multibody_estimation.nodes.inputs import Inputs
from multibody_estimation.nodes.worker import Worker
from multibody_estimation.recording.ring import Rings
from multibody_estimation.recording.topics import name_signals

__all__ = ['Estimator', 'main']

MODES = {
    'identify': 'identifying:IdentifyMode',
    'track': 'tracking:TrackMode',
    'wrench': 'wrenching:WrenchMode',
    'centroidal': 'momentum:CentroidalMode',
}
"""Mode to module and class of this folder; each has configure, activate, deactivate, cleanup and a `report` for diagnostics."""


def find_robot(name: str) -> Robot:
    """A robot of the package by name."""
    known = [n for n in robots.__all__ if callable(getattr(robots, n))]
    if name not in known:
        raise EstimationError(f"There is no robot '{name}'.{did_you_mean(name, known)}")
    return getattr(robots, name)()


class Estimator(LifecycleNode):
    """Thin shell around the solvers."""

    def __init__(self) -> None:
        super().__init__('estimator')
        self.settings = declare(self, 'estimator')
        self.mode: Any = None
        self.inputs: Inputs | None = None
        self.rings = Rings(self.settings.buffer_seconds, max_rate=self.settings.max_rate)
        self.names: dict[str, str] = {}
        self.worker = Worker(lambda error: self.get_logger().error(f'{type(error).__name__}: {error}'))
        self.calls = SlowCalls(self)
        self.diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.create_timer(1.0 / self.settings.status_rate, self.tell)
        if self.settings.autostart:
            self.starter = self.create_timer(0.01, self.start)

    def start(self) -> None:
        """Configure and activate once the executor runs."""
        self.starter.cancel()
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    # Lifecycle.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Make and compile; a parameter that does not fit fails the transition with a sentence in the log."""
        try:
            robot = find_robot(self.settings.robot) if self.settings.mode in ('identify', 'track') else None
            module, _, name = MODES[self.settings.mode].partition(':')
            self.mode = getattr(import_module(f'multibody_estimation.nodes.{module}'), name)(self, robot)
            self.get_logger().info(f'{self.settings.mode}: compiling ...')
            self.mode.configure()
        except (EstimationError, OSError) as error:
            self.get_logger().error(f'cannot configure: {error}')
            self.mode = None
            return TransitionCallbackReturn.FAILURE
        self.get_logger().info(f'{self.settings.mode}: compiled, ready to be activated')
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe and begin."""
        self.inputs = Inputs(self, [*self.settings.topics, *self.overrides().values()], self.take, qos=self.settings.qos)
        self.mode.activate()
        self.get_logger().info(f'{self.settings.mode}: active')
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop; what is buffered stays."""
        self.mode.deactivate()
        self.silence()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Forget."""
        self.mode.cleanup()
        self.mode = None
        self.rings.clear()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop for good."""
        if self.mode is not None:
            self.mode.deactivate()
        self.silence()
        return TransitionCallbackReturn.SUCCESS

    def silence(self) -> None:
        """Unsubscribe."""
        if self.inputs is not None:
            for item in self.inputs.inputs.values():
                if item.subscription is not None:
                    self.destroy_subscription(item.subscription)
            self.inputs = None

    # Data.

    def overrides(self) -> dict[str, str]:
        """Signals that are not called as usual: name to topic."""
        pairs = [s.partition('=') for s in self.settings.signals if s]
        for name, sign, topic in pairs:
            if not sign or not topic:
                raise EstimationError(f"signals: '{name}' is no name=topic.")
        return {name: topic for name, _, topic in pairs}

    def take(self, topic: str, kind: str, message: Any, raw: bytes | None) -> None:
        """Buffer a message."""
        if topic not in self.names and self.inputs is not None:
            own = {n: self.resolve_topic_name(t) for n, t in self.overrides().items()}
            self.names = name_signals({i.topic: i.kind for i in self.inputs.inputs.values() if i.kind}, own)
        if 'refused' in self.rings.take(self.names[topic], kind, message, self.get_clock().now().nanoseconds):
            refusals = [s.refusal for s in self.rings.status() if s.refusal]
            raise EstimationError(refusals[-1] if refusals else self.rings.refusal)

    def needed(self, robot: Robot) -> list[str]:
        """Signals that the robot's sensors and inputs read."""
        return list(dict.fromkeys([*(s.signal for s in robot.sensors), *(i.signal for i in robot.inputs)]))

    # Diagnostics.

    def tell(self) -> None:
        """Publish the state of the solver and of every input."""
        statuses = []
        silent: list[str] = []
        if self.inputs is not None:
            silent = self.inputs.look()
            statuses = self.inputs.statuses(self.get_name())
        report = dict(self.mode.report) if self.mode is not None else {}
        said = report.pop('termination', '') or ('waiting' if self.inputs is not None else 'not active')
        level = 'warn' if silent or report.get('converged') is False else 'ok'
        values = {'mode': self.settings.mode, 'solving': self.worker.busy, 'skipped': self.worker.skipped} | report
        own = diagnostic(f'{self.get_name()}: solver', level, ' '.join([said, *silent]), values, self.settings.robot)
        publish_diagnostics(self.diagnostics, self, [own, *statuses])

    def close(self) -> None:
        """End the threads."""
        self.calls.close()
        self.worker.close()


def main(args: list[str] | None = None) -> None:
    """Run the estimator."""
    run(Estimator, args)
