# SPDX-License-Identifier: Apache-2.0
"""A recording as a device: the messages of a bag with their own stamps, at their own pace or as fast as they are taken."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.hardware.device import Channel, Device, DeviceLost, Sample
from multibody_estimation.recording.bag import read_truth
from multibody_estimation.recording.bag_source import Source, open_bag
from multibody_estimation.recording.definitions import PACKAGE, make_typestore
from multibody_estimation.recording.topics import TABLE, name_signals, read_message, stamp_of, unit_of
from multibody_estimation.window import NANOSECONDS

__all__ = ['Replay']

RESULTS = (f'{PACKAGE}/msg/MultibodyState', f'{PACKAGE}/msg/LinkWrenches')
"""What estimators publish; it is not played, for the estimator that listens makes its own."""

BATCH = 200
"""Samples per read when as fast as possible, so that whoever listens gets its turn."""


@dataclass
class Replay(Device):
    """Plays the topics of a bag that carry signals; defects (doubles, disorder, NaN) are played as they were recorded."""

    bag: str = ''
    """Bag folder or .mcap file."""
    speed: float = 1.0
    """1: original timing; 2: twice as fast; 0: as fast as possible."""
    topics: tuple[str, ...] = ()
    """Only these; default: all that carry measurements or commands."""
    loop: bool = False
    """Begin again at the end. The stamps then jump back."""
    imu_noise: tuple[float, ...] = (0.05, 0.005)
    """Standard deviations (m/s^2, rad/s) of IMUs whose messages do not state theirs."""

    _next: tuple[int, Sample] | None = field(default=None, init=False, repr=False)
    _done: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.bag:
            raise EstimationError('Say which bag to replay: bag=FOLDER.')
        if self.speed < 0:
            raise EstimationError(f'speed {self.speed} must not be negative; 0 is as fast as possible.')
        source = open_bag(self.bag)
        played = {t: k for t, k in source.topics.items() if k in TABLE and k not in RESULTS and '/estimator/' not in t}
        for topic in self.topics:
            if topic not in played:
                raise EstimationError(f"{self.bag}: no topic '{topic}' to play.{did_you_mean(topic, played)}")
        self._kinds = {t: k for t, k in played.items() if not self.topics or t in self.topics}
        self._names = name_signals(self._kinds)
        self._refused = 0
        self._channels = self._describe(source)
        if not self._channels:
            listed = ', '.join(f'{t} ({k})' for t, k in sorted(source.topics.items())) or 'nothing'
            raise EstimationError(f'{self.bag} holds nothing to play: {listed}.')

    def _describe(self, source: Source) -> dict[str, Channel]:
        """Columns, frames, units and noise by the first good message of each topic."""
        found: dict[str, Channel] = {}
        for topic, message, _ in self._messages(source):
            if topic in found:
                if len(found) == len(self._kinds):
                    break
                continue
            kind = self._kinds[topic]
            parts = list(read_message(kind, message))
            if not parts:
                continue
            main, reading = parts[0]
            noise = {part.suffix: part.noise(message) for part, _ in parts if part.noise(message)}
            if kind == 'sensor_msgs/msg/Imu':
                noise = {s: (v,) * 3 for s, v in zip(('/accelerometer', '/gyroscope'), self.imu_noise)} | noise
            named = kind.rsplit('/', 1)[-1] in ('JointState', 'ActuatorCommand', 'Float64MultiArray')
            found[topic] = Channel(
                topic.strip('/'), kind, self._names[topic], reading.columns if named else (), noise=noise,
                frame=getattr(getattr(message, 'header', None), 'frame_id', ''), serial=getattr(message, 'serial', ''),
                unit='V' if unit_of(main, message) == 'V' else '',
            )  # fmt: skip
        return found

    def _messages(self, source: Source) -> Iterator[tuple[str, Any, int]]:
        store = make_typestore({k: v for k, v in source.definitions.items() if k.startswith(f'{PACKAGE}/')})
        for topic, log_time, raw in source.messages:
            if topic not in self._kinds:
                continue
            try:
                yield topic, store.deserialize_cdr(raw, self._kinds[topic]), log_time
            except Exception:  # a message that cannot be decoded must not end the replay
                self._refused += 1

    def _play(self) -> Iterator[tuple[int, Sample]]:
        """Log time and sample, message by message."""
        for topic, message, log_time in self._messages(open_bag(self.bag)):
            channel = self._channels.get(topic)
            if channel is None:
                continue
            parts: dict[str, Any] = {}
            try:
                for part, reading in read_message(channel.message_type, message):
                    values = reading.values
                    if channel.columns and reading.columns != channel.columns:
                        if sorted(reading.columns) != sorted(channel.columns):
                            raise EstimationError('other names')
                        values = [values[reading.columns.index(c)] for c in channel.columns]
                    parts[part.suffix] = values
            except EstimationError:
                self._refused += 1
                continue
            if parts:
                yield log_time, Sample(channel.topic, stamp_of(message) or log_time, parts)

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(self._channels.values())

    @property
    def truth(self) -> Mapping[str, float]:
        return read_truth(self.bag)

    @property
    def realtime(self) -> bool:
        """False where it plays as fast as it is read."""
        return self.speed > 0

    @property
    def finished(self) -> bool:
        return self._done

    def open(self) -> None:
        """Go to the beginning."""
        self._stream = self._play()
        self._next = next(self._stream, None)
        self._done = self._next is None
        self._first = self._next[0] if self._next else 0
        self._began = time.monotonic()

    def read(self, timeout: float) -> list[Sample]:
        """Return the samples that are due, waiting for the next one at most ``timeout`` seconds."""
        if not hasattr(self, '_stream'):
            raise DeviceLost('The replay is not open.')
        if self._next is None:
            if self.loop:
                self.open()
            else:
                self._done = True
                time.sleep(timeout)
                return []
        out: list[Sample] = []
        if self.speed > 0 and self._next is not None:
            wait = self._due(self._next[0]) - time.monotonic()
            if wait > 0:
                time.sleep(min(wait, timeout))
        now = time.monotonic()
        while self._next is not None and len(out) < BATCH and (self.speed == 0 or self._due(self._next[0]) <= now):
            out.append(self._next[1])
            self._next = next(self._stream, None)
        if self._next is None and not self.loop:
            self._done = True
        return out

    def _due(self, log_time: int) -> float:
        return self._began + (log_time - self._first) / NANOSECONDS / self.speed

    def close(self) -> None:
        """Let go of the file."""
        self._next = None
        self.__dict__.pop('_stream', None)

    @property
    def counts(self) -> Mapping[str, int]:
        return {'messages that could not be played': self._refused}
