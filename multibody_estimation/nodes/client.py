# SPDX-License-Identifier: Apache-2.0
"""A small client for those who drive the nodes from a program: the demo, load tests, scripts."""

import threading
import time
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.action import ActionClient
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

from multibody_estimation.action import Identify
from multibody_estimation.errors import EstimationError

__all__ = ['Client']


class Client:
    """Context manager with a node of its own, spun in a thread; every call waits for its answer, with a time limit."""

    def __init__(self, name: str = 'client', **options: Any) -> None:
        """options: of rclpy.init, e.g. domain_id."""
        self.context = rclpy.Context()
        rclpy.init(context=self.context, **options)
        self.node = rclpy.create_node(name, context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.thread = threading.Thread(target=self._spin, name='client', daemon=True)

    def __enter__(self) -> 'Client':
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.executor.shutdown(timeout_sec=1.0)
        self.thread.join(2.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def _spin(self) -> None:
        try:
            self.executor.spin()
        except (ExternalShutdownException, KeyboardInterrupt):
            return

    def wait(self, ready: Callable[[], bool], seconds: float, what: str, alive: Callable[[], str] = lambda: '') -> None:
        """Wait until something is ready; alive() names a process that ended meanwhile, or is empty."""
        end = time.monotonic() + seconds
        while not ready():
            gone = alive()
            if gone:
                raise EstimationError(f'The {gone} ended while waiting for {what}; its output says why.')
            if time.monotonic() > end:
                raise EstimationError(f'{what} did not come within {seconds:g} s.')
            time.sleep(0.02)

    def result(self, future: Any, seconds: float, what: str) -> Any:
        """Result of a future within a time limit."""
        self.wait(future.done, seconds, what)
        return future.result()

    def call(self, kind: Any, name: str, *, limit: float = 10.0, **fields: Any) -> Any:
        """Call a service and return its response. limit: seconds to wait at most; fields: of the request."""
        client = self.node.create_client(kind, name)
        try:
            self.wait(client.service_is_ready, limit, f'the service {name}')
            return self.result(client.call_async(kind.Request(**fields)), limit, f'the answer of {name}')
        finally:
            self.node.destroy_client(client)

    def identify(
        self,
        name: str = '/estimator/identify',
        *,
        limit: float = 180.0,
        feedback: Callable[[Any], None] | None = None,
        **goal: Any,
    ) -> Any:
        """Send a goal to the action Identify; return its result. limit: seconds to wait at most; goal: fields of the goal."""
        client = ActionClient(self.node, Identify, name)
        try:
            self.wait(client.server_is_ready, limit, f'the action {name}')
            told = (lambda m: feedback(m.feedback)) if feedback else None
            handle = self.result(
                client.send_goal_async(Identify.Goal(**goal), feedback_callback=told), 10.0, 'an answer to the goal'
            )
            if not handle.accepted:
                raise EstimationError(f'{name} refused the goal; its log says why.')
            return self.result(handle.get_result_async(), limit, 'the result').result
        finally:
            client.destroy()
