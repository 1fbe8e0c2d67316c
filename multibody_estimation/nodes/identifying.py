# SPDX-License-Identifier: Apache-2.0
"""Estimator mode `identify`: the action Identify and the service ~/identify_now, on a bag or on the buffer."""

import datetime
import time
from pathlib import Path
from typing import Any

from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.qos import DurabilityPolicy, QoSProfile

from multibody_estimation.action import Identify
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification import Fit, identify
from multibody_estimation.identification.rehearsal import rehearse_identify
from multibody_estimation.msg import ParameterEstimate
from multibody_estimation.nodes.common import below
from multibody_estimation.nodes.outputs import parameter_estimate
from multibody_estimation.recording.bag import read_bag
from multibody_estimation.srv import IdentifyNow
from multibody_estimation.window import Window

__all__ = ['IdentifyMode']

PATIENCE = 5.0
"""Seconds without a new sample after which collecting gives up."""


class Cancelled(Exception):
    """The client took its goal back."""


class IdentifyMode:
    """Collects a window, solves it in the worker, publishes the parameters."""

    def __init__(self, node: Any, robot: Any) -> None:
        self.node, self.robot, self.settings = node, robot, node.settings
        self.problem: Any = None
        self.report: dict[str, Any] = {}
        self.server: Any = None

    def configure(self) -> None:
        """Compile for the window length that the parameters name."""
        self.problem = rehearse_identify(self.robot, self.settings.identify_seconds, self.settings.sample_rate)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.publisher = self.node.create_publisher(ParameterEstimate, '~/parameters', latched)

    def activate(self) -> None:
        """Take goals and calls from now on."""
        self.server = ActionServer(
            self.node, Identify, '~/identify', self.unused, goal_callback=self.judge, handle_accepted_callback=self.accept,
            cancel_callback=lambda goal: CancelResponse.ACCEPT,
        )  # fmt: skip
        self.service = self.node.calls.serve(IdentifyNow, '~/identify_now', self.now)

    def deactivate(self) -> None:
        """Take no more goals and calls."""
        if self.server is not None:
            self.server.destroy()
            self.node.calls.node.destroy_service(self.service)
            self.server = None

    def cleanup(self) -> None:
        """Forget what was compiled."""
        self.node.destroy_publisher(self.publisher)
        self.problem = None

    # The action.

    def judge(self, goal: Any) -> GoalResponse:
        """Refuse a second goal while one runs, and a parameter that the robot does not have."""
        try:
            self.chosen(goal.parameters)
            if self.node.worker.busy:
                raise EstimationError('an identification is running; wait for it or cancel it')
        except EstimationError as error:
            self.node.get_logger().warning(f'Goal refused: {error}')
            return GoalResponse.REJECT
        return GoalResponse.ACCEPT

    def accept(self, handle: Any) -> None:
        """Give the goal to the worker; the executor is free for samples and for a cancel meanwhile."""
        if not self.node.worker.offer(lambda: self.work(handle)):
            handle.execute(
                lambda h: self.finish(
                    h, Identify.Result(message='An identification is running; wait for it or cancel it.'), 'abort'
                )
            )

    def unused(self, handle: Any) -> Any:
        """Never called: `accept` runs goals in the worker."""
        raise AssertionError

    def work(self, handle: Any) -> None:
        """In the worker's thread: collect, solve, answer."""
        goal, result, ending = handle.request, Identify.Result(), 'abort'

        def tell(phase: str, iteration: int = 0, cost: float = 0.0, step: float = 0.0, progress: float = 0.0) -> None:
            handle.publish_feedback(
                Identify.Feedback(phase=phase, iteration=iteration, cost=float(cost), step=float(step), progress=float(progress))
            )

        try:
            if goal.bag:
                window = read_bag(below(self.settings.data_folder, goal.bag, exists=True))
            else:
                window = self.collect(goal.seconds, tell, lambda: handle.is_cancel_requested)
            tell('preparing')
            fit = self.solve(
                window,
                goal.parameters,
                goal.weight,
                lambda i, cost, step: tell('solving', i, cost, step, 0.5),
                lambda: handle.is_cancel_requested,
            )
            if handle.is_cancel_requested:
                raise Cancelled
            result.success, result.message, result.estimate = bool(fit.converged), str(fit), self.publish(fit, window)
            result.report_path = self.write(fit, window)
            ending = 'succeed'
        except Cancelled:
            result.message, ending = 'Cancelled; nothing was changed.', 'canceled'
        except (EstimationError, OSError) as error:
            result.message = str(error)
            self.node.get_logger().warning(f'identify: {error}')
        except Exception as error:  # an answer must come whatever happens
            result.message = f'The estimator failed: {type(error).__name__}: {error}. Please report this.'
            self.node.get_logger().error(result.message)
        handle.execute(lambda h: self.finish(h, result, ending))

    def finish(self, handle: Any, result: Any, ending: str) -> Any:
        """Set the final state of a goal and hand out its result."""
        if handle.is_cancel_requested:
            ending = 'canceled'
        getattr(handle, ending)()
        return result

    # The service.

    def now(self, request: Any, response: Any) -> Any:
        """Identify once from the buffer; runs in a thread of its own."""
        done: list[Any] = []

        def job() -> None:
            try:
                window = self.collect(request.seconds, None, lambda: False, wait=False)
                fit = self.solve(window, request.parameters, 0.0, None, None)
                done.append((bool(fit.converged), str(fit), self.publish(fit, window)))
                self.write(fit, window)
            except (EstimationError, OSError) as error:
                done.append((False, str(error), ParameterEstimate()))

        if not self.node.worker.offer(job):
            response.success, response.message = False, 'An identification is running; wait for it or cancel it.'
            return response
        while not done and self.node.worker.busy:
            time.sleep(0.01)
        response.success, response.message, response.estimate = (
            done[0] if done else (False, 'The estimator failed; see its log.', ParameterEstimate())
        )
        return response

    # Shared.

    def chosen(self, names: list[str]) -> tuple[str, ...]:
        """Parameters to hold: all but the named ones; none where no name is given."""
        if not names:
            return ()
        known = [p.name for p in self.robot.parameters]
        for name in names:
            if name not in known:
                raise EstimationError(f"'{name}' is no parameter of this robot.{did_you_mean(name, known)}")
        return tuple(n for n in known if n not in names)

    def collect(self, seconds: float, tell: Any, cancelled: Any, *, wait: bool = True) -> Window:
        """The last ``seconds`` of the buffer, waiting until so much is there since now; 0 takes what there is."""
        rings, needed = self.node.rings, self.node.needed(self.robot)
        if seconds > self.settings.buffer_seconds:
            raise EstimationError(
                f'{seconds:g} s do not fit the buffer of {self.settings.buffer_seconds:g} s. Ask for less, or set buffer_seconds.'
            )
        began, last, newest, moved = rings.newest(), 0.0, rings.newest(), time.monotonic()
        while wait and seconds > 0:
            if cancelled():
                raise Cancelled
            now = rings.newest()
            if now != newest:
                newest, moved = now, time.monotonic()
                began = began or now
            elif time.monotonic() - moved > PATIENCE:
                raise EstimationError(
                    f'No sample for {PATIENCE:g} s while collecting. {" ".join(self.node.inputs.look(tell=False))}'.strip()
                )
            gone = (newest - began) / 1e9 if began else 0.0
            if gone >= seconds:
                break
            if tell and time.monotonic() - last > 0.5:
                last = time.monotonic()
                tell('collecting', progress=0.5 * gone / seconds)
            time.sleep(0.02)
        for name in needed:
            if name not in rings:
                raise EstimationError(f"No sample of '{name}' has come. {' '.join(self.node.inputs.look(tell=False))}".strip())
        return rings.window(seconds, signals=needed)

    def solve(self, window: Window, names: list[str], weight: float, progress: Any, cancelled: Any) -> Fit:
        """Identify; the compiled problem serves where the same parameters are asked for."""
        fix = self.chosen(names)
        begin = time.perf_counter()
        fit = identify(self.robot, window, fix=fix, weight=weight or self.settings.weight or None, progress=progress, cancelled=cancelled,
                       problem=None if fix else self.problem)  # fmt: skip
        self.report = {
            'termination': fit.sentence, 'converged': fit.converged, 'iterations': fit.iterations, 'final cost': float(fit.cost),
            'optimization total time [s]': time.perf_counter() - begin, 'window [s]': window.duration, 'defects': len(window.defects),
        }  # fmt: skip
        return fit

    def publish(self, fit: Fit, window: Window) -> ParameterEstimate:
        """Publish the parameters; stamp: end of the window."""
        message = parameter_estimate(fit, window.start + round(window.duration * 1e9))
        self.publisher.publish(message)
        return message

    def write(self, fit: Fit, window: Window) -> str:
        """Save the fit, and the report where it is wanted; return the path of the report."""
        folder = Path(below(self.settings.data_folder, datetime.datetime.now().strftime('%Y-%m-%dT%H-%M-%S-%f')[:-3]))
        folder.mkdir(parents=True, exist_ok=True)
        fit.save(folder / 'fit.yaml')
        if not self.settings.report:
            return ''
        path = folder / 'report.html'
        fit.report(path)
        return str(path)
