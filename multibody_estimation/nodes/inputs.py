# SPDX-License-Identifier: Apache-2.0
"""Subscriptions that explain themselves: how many messages came, how fast, how old, and why none came."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message

from multibody_estimation.nodes.common import diagnostic
from multibody_estimation.recording.topics import TABLE

__all__ = ['Input', 'Inputs', 'message_class']

DEPTH = 2000
"""Messages kept by the middleware while the executor is busy: two seconds at 1 kHz."""
BATCH = 200
"""Messages taken in one turn at most, so that services are answered in between."""
KNOWN = {'joint_states': 'sensor_msgs/msg/JointState', 'applied_command': 'multibody_estimation/msg/ActuatorCommand',
         'command': 'multibody_estimation/msg/ActuatorCommand', 'data_raw': 'sensor_msgs/msg/Imu', 'imu': 'sensor_msgs/msg/Imu',
         'strain': 'multibody_estimation/msg/RawStrain', 'wrench': 'geometry_msgs/msg/WrenchStamped'}  # fmt: skip
"""Type of a topic whose publisher is not there yet, by the last part of its name."""


def message_class(kind: str) -> Any:
    """Class of a message type such as ``sensor_msgs/msg/JointState``."""
    package, _, name = kind.split('/')
    return getattr(import_module(f'{package}.msg'), name)


@dataclass
class Input:
    """One topic and what is known of it."""

    topic: str
    kind: str = ''
    subscription: Any = None
    reliable: bool = True
    count: int = 0
    refused: int = 0
    first: float = 0.0
    last: float = 0.0
    frame: str = ''
    problem: str = ''
    """What is wrong at the moment, as a sentence; empty where all is well."""
    told: set = field(default_factory=set)

    @property
    def rate(self) -> float:
        """Messages per second since the first one, Hz."""
        return (self.count - 1) / (self.last - self.first) if self.count > 1 and self.last > self.first else 0.0


class Inputs:
    """Subscribes to topics, counts what comes, and finds out why a topic is silent.

    take(topic, kind, message, raw): called for every message; an EstimationError that it raises is counted and told, not passed on.
    raw: also hand the serialised message on, for a recorder.
    """

    def __init__(
        self,
        node: Any,
        topics: list[str],
        take: Callable[[str, str, Any, bytes | None], None],
        *,
        qos: str = 'auto',
        raw: bool = False,
    ) -> None:
        self.node, self.take, self.qos, self.raw = node, take, qos, raw
        self.began = time.monotonic()
        self.inputs = {
            name: Input(name, reliable=qos != 'best_effort') for name in (node.resolve_topic_name(t) for t in topics if t)
        }
        for item in self.inputs.values():
            self._subscribe(item)

    def _subscribe(self, item: Input) -> None:
        """Subscribe as soon as the type is known: from the graph, or from the topic's name."""
        if item.subscription is None:
            offered = {t: kinds for t, kinds in self.node.get_topic_names_and_types() if t == item.topic}
            kinds = [k for k in offered.get(item.topic, []) if k in TABLE]
            item.kind = kinds[0] if kinds else KNOWN.get(item.topic.rsplit('/', 1)[-1], '')
            if not item.kind:
                return
        reliability = ReliabilityPolicy.RELIABLE if item.reliable else ReliabilityPolicy.BEST_EFFORT
        profile = QoSProfile(depth=DEPTH, history=HistoryPolicy.KEEP_LAST, reliability=reliability)
        events = SubscriptionEventCallbacks(
            incompatible_qos=lambda event, item=item: self._incompatible(item), use_default_callbacks=False
        )
        kind = message_class(item.kind)

        def receive(data: Any, item: Input = item, kind: Any = kind) -> None:
            self._count(item, kind, data)
            # The executor builds a wait set for every message, which costs more than the message: take what else is there at once.
            handle = item.subscription.handle
            with handle:
                for _ in range(BATCH):
                    more = handle.take_message(kind, self.raw)
                    if more is None:
                        break
                    self._count(item, kind, more[0])

        item.subscription = self.node.create_subscription(
            kind, item.topic, receive, profile, event_callbacks=events, raw=self.raw
        )

    def _count(self, item: Input, kind: Any, data: Any) -> None:
        """Take one message; what cannot be used is counted and told."""
        now = time.monotonic()
        item.count += 1
        item.last = now
        if item.count == 1:
            item.first = now
        try:
            message = deserialize_message(data, kind) if self.raw else data
            item.frame = message.header.frame_id if hasattr(message, 'header') else ''
            self.take(item.topic, item.kind, message, data if self.raw else None)
        except ValueError as error:
            item.refused += 1
            self._tell(item, f'{item.topic}: message {item.count} was left out: {error}')

    def _incompatible(self, item: Input) -> None:
        if self.qos == 'auto' and item.reliable:
            item.reliable = False
            self.node.destroy_subscription(item.subscription)
            self._subscribe(item)
            self._tell(
                item,
                f'{item.topic}: its publisher is best-effort, so this subscription is best-effort now too; samples may get lost.',
            )
        else:
            item.problem = f'{item.topic}: a publisher exists but its QoS is best-effort and this subscription is reliable, so nothing arrives. Set qos: auto.'
            self._tell(item, item.problem)

    def _tell(self, item: Input, sentence: str) -> None:
        """Log a sentence once per topic and kind of trouble."""
        key = re.sub(r'[0-9.]+', '#', sentence.split(':', 2)[-1])[:60]
        if key not in item.told and len(item.told) < 20:
            item.told.add(key)
            self.node.get_logger().warning(sentence)

    def look(self, *, patience: float = 1.5, tell: bool = True) -> list[str]:
        """Return a sentence for each topic that is silent, with what to do; log the new ones."""
        sentences = []
        now = time.monotonic()
        for item in self.inputs.values():
            if item.subscription is None:
                self._subscribe(item)
            age = now - (item.last or self.began)
            if age < patience:
                item.problem = ''
                continue
            if item.problem and 'QoS' in item.problem and not item.count:
                sentences.append(item.problem)
                continue
            publishers = self.node.count_publishers(item.topic)
            if item.count:
                item.problem = f'{item.topic}: the last message came {age:.1f} s ago, after {item.count} messages. Is its publisher still running?'
            elif not item.kind:
                item.problem = f'{item.topic}: nobody publishes it, and its name does not tell its type. Is the driver running, in this namespace and domain?'
            elif publishers:
                item.problem = f'{item.topic}: {publishers} publisher(s) but no message for {age:.1f} s. Is the device running?'
            else:
                own = f'{self.node.get_fully_qualified_name()}/'
                others = [t for t, kinds in self.node.get_topic_names_and_types() if item.kind in kinds and not t.startswith(own)]
                near = sorted(t for t in others if t != item.topic and self.node.count_publishers(t))
                hint = (
                    f' Topics of its type: {", ".join(near[:4])}.'
                    if near
                    else ' Is the driver running, with the same ROS_DOMAIN_ID and namespace?'
                )
                item.problem = f'{item.topic}: nobody publishes it ({item.kind}).{hint}'
            sentences.append(item.problem)
            if tell:
                self._tell(item, item.problem)
        return sentences

    def statuses(self, owner: str) -> list[DiagnosticStatus]:
        """One line of diagnostics per topic."""
        out = []
        now = time.monotonic()
        for item in self.inputs.values():
            level = 'error' if item.problem else ('warn' if item.refused else 'ok')
            said = item.problem or (f'{item.refused} messages were left out' if item.refused else 'arriving')
            age = now - item.last if item.count else float('inf')
            values = {'count': item.count, 'rate [Hz]': item.rate, 'age [s]': age, 'refused': item.refused, 'frame': item.frame,
                      'type': item.kind, 'reliability': 'reliable' if item.reliable else 'best effort'}  # fmt: skip
            out.append(diagnostic(f'{owner}: {item.topic}', level, said, values))
        return out
