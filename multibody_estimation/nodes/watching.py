# SPDX-License-Identifier: Apache-2.0
"""What goes on in a ROS 2 graph, collected for `multibody-estimation watch`: every topic counted, the known ones read."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message

from multibody_estimation.reporting.live import Quantity, Snapshot, Status, Topic

__all__ = ['Watcher']

HIDDEN = ('/rosout', '/parameter_events')
SPAN = 2.0
"""Seconds over which a rate is counted."""
LEVELS = {b'\x00': 'ok', b'\x01': 'warn', b'\x02': 'error', b'\x03': 'stale'}


@dataclass
class Heard:
    """One topic as it comes in."""

    topic: str
    type: str
    subscription: Any = None
    kind: Any = None
    note: str = ''
    latched: bool = False
    count: int = 0
    times: deque = field(default_factory=lambda: deque(maxlen=4000))
    raw: bytes = b''


def _message_class(name: str) -> Any:
    package, _, kind = name.split('/')
    return getattr(import_module(f'{package}.msg'), kind)


class Watcher:
    """Subscribes to whatever is published; messages are read only when somebody looks, so that fast topics cost little.

    names: only these topics (as in the graph, with or without the leading slash); none: all.
    """

    def __init__(self, node: Any, names: Sequence[str] = ()) -> None:
        self.node, self.names = node, {n if n.startswith('/') else f'/{n}' for n in names}
        self.heard: dict[str, Heard] = {}
        self.statuses: dict[str, Status] = {}
        self.lock = threading.Lock()
        self.began = time.monotonic()

    def look_around(self) -> None:
        """Subscribe to topics that are new in the graph."""
        for name, kinds in self.node.get_topic_names_and_types():
            wanted = name in self.names if self.names else name not in HIDDEN and '/_action/' not in name
            if not wanted or name in self.heard:
                continue
            offers = self.node.get_publishers_info_by_topic(name)
            if not offers:
                continue
            item = Heard(name, kinds[0])
            try:
                item.kind = _message_class(kinds[0])
            except (ImportError, AttributeError, ValueError):
                item.note = 'its message type is not installed here'
            else:
                item.subscription = self._subscribe(item, offers)
            with self.lock:
                self.heard[name] = item

    def _subscribe(self, item: Heard, offers: Sequence[Any]) -> Any:
        """With the weakest of what the publishers offer, so that all of them are heard."""
        reliable = all(o.qos_profile.reliability == ReliabilityPolicy.RELIABLE for o in offers)
        item.latched = all(o.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for o in offers)
        profile = QoSProfile(
            depth=10 if item.latched else 200,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if item.latched else DurabilityPolicy.VOLATILE,
        )
        return self.node.create_subscription(item.kind, item.topic, lambda raw: self._take(item, raw), profile, raw=True)

    def _take(self, item: Heard, raw: bytes) -> None:
        with self.lock:
            item.count += 1
            item.times.append(time.monotonic())
            item.raw = raw
        if item.type == 'diagnostic_msgs/msg/DiagnosticArray':
            # Several nodes share this topic: each message counts, not only the last.
            for s in deserialize_message(raw, item.kind).status:
                status = Status(s.name, LEVELS.get(bytes(s.level), 'stale'), s.message, {v.key: v.value for v in s.values})
                with self.lock:
                    self.statuses[s.name] = status

    def snapshot(self) -> Snapshot:
        """What is known by now."""
        self.look_around()
        now = time.monotonic()
        topics, states, parameters, sentences = [], {}, {}, {}
        with self.lock:
            items = [(i, list(i.times), i.raw, i.count) for i in self.heard.values()]
            statuses = list(self.statuses.values())
        for item, times, raw, count in sorted(items, key=lambda x: x[0].topic):
            recent = [t for t in times if now - t < SPAN]
            rate = (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 1 and recent[-1] > recent[0] else math.nan
            age = now - times[-1] if times else math.inf
            publishers = self.node.count_publishers(item.topic)
            note = item.note or ('its publisher is gone' if not publishers else '')
            topics.append(Topic(item.topic, item.type, rate, age, count, publishers, note, item.latched))
            read = READERS.get(item.type)
            if read is None or not raw:
                continue
            message = deserialize_message(raw, item.kind)
            if item.type.endswith('/ParameterEstimate'):
                parameters[item.topic], sentences[item.topic] = _parameters(message), message.result
            else:
                states[item.topic] = read(message)
        title = f'{len(topics)} topics, {len(self.node.get_node_names())} nodes, watching for {now - self.began:.0f} s'
        return Snapshot(topics, states, parameters, sentences, statuses, title)


Rows = list[tuple[str, list[Quantity]]]


def _at(values: Any, i: int) -> float:
    return float(values[i]) if i < len(values) else math.nan


def _joint_state(m: Any) -> Rows:
    return [(n, [Quantity('position', _at(m.position, i)), Quantity('velocity', _at(m.velocity, i)), Quantity('effort', _at(m.effort, i))])
            for i, n in enumerate(m.name)]  # fmt: skip


def _multibody_state(m: Any) -> Rows:
    parts = ('position', 'velocity', 'effort', 'acceleration')
    return [
        (n, [Quantity(p, _at(getattr(m, p), i), _at(getattr(m, f'{p}_std_devs'), i)) for p in parts if len(getattr(m, p))])
        for i, n in enumerate(m.joint_names)
    ]  # fmt: skip


def _six(w: Any, deviations: Sequence[float] = ()) -> list[Quantity]:
    values = [(f'f{a}', getattr(w.force, a), 'N') for a in 'xyz'] + [(f't{a}', getattr(w.torque, a), 'N m') for a in 'xyz']
    return [Quantity(name, float(x), _at(deviations, i), unit) for i, (name, x, unit) in enumerate(values)]


def _link_wrenches(m: Any) -> Rows:
    out = []
    for i, (link, w) in enumerate(zip(m.link_names, m.wrenches)):
        variances = [_at(m.covariances, 36 * i + 7 * k) for k in range(6)]
        out.append((link, _six(w, [math.sqrt(v) if v >= 0 else math.nan for v in variances])))
    return out


def _wrench(m: Any) -> Rows:
    return [(m.header.frame_id, _six(m.wrench))]


def _centroidal(m: Any) -> Rows:
    parts = [('centre of mass [m]', m.center_of_mass), ('linear momentum [N s]', m.linear_momentum), ('angular momentum [N m s]', m.angular_momentum),
             ('force [N]', m.wrench.force), ('moment [N m]', m.wrench.torque)]  # fmt: skip
    deviations = [math.sqrt(max(float(m.covariance[16 * k]), 0.0)) for k in range(15)]
    return [
        (name, [Quantity(a, float(getattr(v, a)), deviations[3 * k + j]) for j, a in enumerate('xyz')])
        for k, (name, v) in enumerate(parts)
    ]


def _parameters(m: Any) -> list[Quantity]:
    return [
        Quantity(n, float(v), float(s), u, 'at a bound' if b else 'not told' if math.isinf(s) else '')
        for n, v, s, u, b in zip(m.names, m.values, m.std_devs, m.units, m.at_bound)
    ]


READERS: dict[str, Callable[[Any], Any]] = {
    'sensor_msgs/msg/JointState': _joint_state,
    'geometry_msgs/msg/WrenchStamped': _wrench,
    'multibody_estimation/msg/MultibodyState': _multibody_state,
    'multibody_estimation/msg/LinkWrenches': _link_wrenches,
    'multibody_estimation/msg/CentroidalState': _centroidal,
    'multibody_estimation/msg/ParameterEstimate': _parameters,
}
"""How the newest message of a type is shown."""
