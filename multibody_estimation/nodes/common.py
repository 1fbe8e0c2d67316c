# SPDX-License-Identifier: Apache-2.0
"""What every node needs: its parameters declared from the table, stamps, diagnostics, safe paths, and a main loop that ends quietly."""

import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rclpy
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

from multibody_estimation.errors import EstimationError
from multibody_estimation.nodes.settings import SETTINGS, check

__all__ = ['below', 'config_path', 'declare', 'diagnostic', 'publish_diagnostics', 'run', 'to_stamp']

LEVELS = {
    'ok': DiagnosticStatus.OK,
    'warn': DiagnosticStatus.WARN,
    'error': DiagnosticStatus.ERROR,
    'stale': DiagnosticStatus.STALE,
}


def declare(node: Any, kind: str) -> SimpleNamespace:
    """Declare the parameters of a kind of node and return their values; an unknown or impossible one is an error."""
    given = {name: p.value for name, p in getattr(node, '_parameter_overrides', {}).items()}
    check(kind, given, node.get_name())
    values = {}
    for s in SETTINGS[kind]:
        words = [s.meaning, f'[{s.unit}]' if s.unit else '', f'One of {", ".join(s.choices)}.' if s.choices else '']
        text = ' '.join(w for w in words if w)
        descriptor = ParameterDescriptor(description=text, read_only=True)
        if s.low is not None and s.high is not None:
            if isinstance(s.default, float):
                descriptor.floating_point_range = [FloatingPointRange(from_value=float(s.low), to_value=float(s.high))]
            else:
                descriptor.integer_range = [IntegerRange(from_value=int(s.low), to_value=int(s.high), step=1)]
        default = s.default
        if isinstance(default, float) and isinstance(given.get(s.name), int):
            # ROS takes 10 for an integer; a person means 10.0.
            node._parameter_overrides[s.name] = rclpy.Parameter(s.name, rclpy.Parameter.Type.DOUBLE, float(given[s.name]))
        values[s.name] = node.declare_parameter(s.name, default, descriptor).value
    return SimpleNamespace(**values)


def to_stamp(nanoseconds: int) -> Time:
    """Return a header stamp."""
    return Time(sec=int(nanoseconds) // 1_000_000_000, nanosec=int(nanoseconds) % 1_000_000_000)


def diagnostic(
    name: str, level: str, message: str, values: Mapping[str, Any] | None = None, hardware: str = ''
) -> DiagnosticStatus:
    """Return one line of /diagnostics; keys carry their unit, e.g. ``rate [Hz]``."""
    pairs = [KeyValue(key=k, value=f'{v:.6g}' if isinstance(v, float) else str(v)) for k, v in (values or {}).items()]
    return DiagnosticStatus(level=LEVELS[level], name=name, message=message, hardware_id=hardware, values=pairs)


def publish_diagnostics(publisher: Any, node: Any, statuses: list[DiagnosticStatus]) -> None:
    """Publish the statuses with the time of now."""
    message = DiagnosticArray(status=statuses)
    message.header.stamp = node.get_clock().now().to_msg()
    publisher.publish(message)


def below(folder: str | Path, name: str, *, exists: bool = False) -> Path:
    """Return the path of a file below the data folder; what would lead out of it is refused."""
    root = Path(folder).absolute().resolve()
    if not name or '\0' in name:
        raise EstimationError('A file name is needed.')
    path = (root / name).resolve()
    if path == root or not path.is_relative_to(root):
        raise EstimationError(f"'{name}' lies outside of the data folder {root}. Give a name below it, or set data_folder.")
    if exists and not path.exists():
        raise EstimationError(f"There is no '{name}' in the data folder {root}.")
    return path


def config_path(name: str) -> Path:
    """Path of a setup file: as given, or of config/ of this package."""
    from multibody_estimation.nodes.bringup import config_file

    return Path(name) if Path(name).is_file() else Path(config_file(name))


def run(make: Callable[[], Any], args: list[str] | None = None) -> None:
    """Make a node and spin it until it is told to stop; `close()` of the node, if it has one, runs last."""
    rclpy.init(args=args)
    node = None
    try:
        node = make()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: rclpy.try_shutdown())
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        executor.spin()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        if node is not None:
            if hasattr(node, 'close'):
                node.close()
            node.destroy_node()
        rclpy.try_shutdown()
