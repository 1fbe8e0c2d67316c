# SPDX-License-Identifier: Apache-2.0
"""Services whose answer takes time: answered in a thread of their own, so that the subscriptions of the node never wait.

rclpy polls a coroutine that awaits, which takes a whole core; a second, hidden node with an executor of its own costs nothing.
"""

import threading
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

__all__ = ['SlowCalls']


class SlowCalls:
    """A hidden node beside ``node`` that answers slow services one after another."""

    def __init__(self, node: Any) -> None:
        context = node.context
        self.owner = node
        self.node = rclpy.create_node(f'_{node.get_name()}_calls', context=context, namespace=node.get_namespace(), use_global_arguments=False,
                                      start_parameter_services=False, enable_rosout=False)  # fmt: skip
        self.executor = SingleThreadedExecutor(context=context)
        self.executor.add_node(self.node)
        self.thread = threading.Thread(target=self._spin, name='slow-calls', daemon=True)
        self.thread.start()

    def serve(self, kind: Any, name: str, answer: Callable[[Any, Any], Any]) -> Any:
        """Create a service of the owner (``~/name`` is the owner's) whose ``answer(request, response)`` may block."""
        return self.node.create_service(kind, self.owner.resolve_service_name(name), answer)

    def _spin(self) -> None:
        try:
            self.executor.spin()
        except (ExternalShutdownException, KeyboardInterrupt):
            return

    def close(self) -> None:
        """Stop answering."""
        self.executor.shutdown(timeout_sec=1.0)
        self.thread.join(2.0)
        self.node.destroy_node()
