# SPDX-License-Identifier: Apache-2.0
"""A Furuta pendulum whose microcontroller speaks `serial_protocol` over USB or a UART."""

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from multibody_estimation.errors import EstimationError
from multibody_estimation.hardware import serial_protocol as protocol
from multibody_estimation.hardware.clock import ClockMap
from multibody_estimation.hardware.device import KINDS, Actuators, Channel, Command, Device, DeviceLost, Sample

__all__ = ['SerialFuruta']

FLAGS = {1: 'samples with a command that ran out', 2: 'samples with a command cut by the device', 4: 'samples while stopped'}


@dataclass
class SerialFuruta(Device):
    """Encoders on ``joint_states``; what drives the motor, as the device itself reports it, on ``applied_command``."""

    port: str = ''
    """Serial port, e.g. /dev/ttyACM0 or COM3."""
    baud: int = 921_600
    """Bits per second; without meaning for USB ports."""
    kind: str = 'voltage'
    """What the motor takes: ``voltage`` or ``torque``; must agree with the device."""
    limit: float = 6.0
    """Largest command in V or N m; the device has a limit of its own besides."""
    resolution: float = 2 * math.pi / 2048
    """Encoder step in rad that the noise is stated from; the angle itself is computed with what the device says."""
    answer: float = 2.0
    """Seconds within which the device must say who it is."""
    warm_up: float = 0.3
    """Seconds of samples after opening that only set the clock: the first ones may have waited in a buffer."""

    _serial: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise EstimationError(f"kind is '{self.kind}'; it can be {' or '.join(KINDS)}.")
        self._counts = dict.fromkeys(('frames with a wrong checksum', 'frames of unknown type', 'frames lost', 'restarts', *FLAGS.values()), 0)  # fmt: skip
        self.info: protocol.Info | None = None
        """What the device said about itself when it was opened."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        noise = {'': (self.resolution / math.sqrt(12),) * 2}
        unit = 'V' if self.kind == 'voltage' else ''
        return (
            Channel('joint_states', 'sensor_msgs/msg/JointState', 'encoders', ('arm', 'pendulum'), noise=noise),
            Channel('applied_command', 'multibody_estimation/msg/ActuatorCommand', 'command', ('arm',), unit=unit),
        )

    @property
    def actuators(self) -> Actuators:
        return Actuators(('arm',), self.kind, (self.limit,))

    def open(self) -> None:
        """Open the port and wait until the device has said who it is."""
        try:
            import serial
        except ModuleNotFoundError:
            raise EstimationError('The serial device needs pyserial: pip install pyserial.') from None
        if not self.port:
            raise EstimationError('Say which port: port=/dev/ttyACM0 (or COM3).')
        self.close()
        try:
            self._serial = serial.Serial(self.port, self.baud, timeout=0, write_timeout=0.2, exclusive=True)
        except (OSError, ValueError) as error:
            raise DeviceLost(f'{self.port} cannot be opened: {error}.') from error
        self._decoder, self._clock, self.info = protocol.Decoder(), ClockMap(), None
        self._sequence = 0
        self._expected: int | None = None
        end, again = time.monotonic() + self.answer, 0.0
        while self.info is None:
            now = time.monotonic()
            if now > end:
                self.close()
                raise DeviceLost(f'{self.port} does not answer. Is it the right port, and is the firmware on it?')
            if now >= again:
                self._send(protocol.hello(self._next()))
                again = now + 0.2
            self._receive(0.02)
        self._check()
        end = time.monotonic() + self.warm_up
        while time.monotonic() < end:
            self._receive(0.02)

    def _check(self) -> None:
        info = self.info
        assert info is not None
        problem = ''
        if info.version != protocol.VERSION:
            problem = f'its firmware speaks version {info.version}, this driver version {protocol.VERSION}; load the one of docs/firmware'
        elif info.kind != self.kind:
            problem = f'it takes a {info.kind}; set kind={info.kind}'
        elif not (info.arm_counts and info.pendulum_counts):
            problem = 'it says that an encoder has 0 counts per turn; set them in the firmware'
        if problem:
            self.close()
            raise EstimationError(f'The device at {self.port} cannot be used: {problem}.')

    def read(self, timeout: float) -> list[Sample]:
        """Return the samples that have arrived."""
        return self._receive(timeout)

    def _receive(self, timeout: float) -> list[Sample]:
        if self._serial is None:
            raise DeviceLost(f'{self.port} is not open.')
        try:
            self._serial.timeout = timeout
            data = self._serial.read(1)
            data += self._serial.read(self._serial.in_waiting) if data else b''
        except (OSError, TypeError) as error:
            raise DeviceLost(f'{self.port} is gone: {error}.') from error
        arrival = time.time_ns()
        out = []
        for message in self._decoder.feed(data):
            if isinstance(message, protocol.Info):
                self.info = message
            elif isinstance(message, protocol.State) and self.info is not None:
                out += self._sample(message, arrival)
        self._counts['frames with a wrong checksum'] += self._decoder.wrong
        self._counts['frames of unknown type'] += self._decoder.unknown
        self._decoder.wrong = self._decoder.unknown = 0
        return out

    def _sample(self, state: protocol.State, arrival: int) -> list[Sample]:
        info = self.info
        assert info is not None
        restarts = self._clock.restarts
        stamp = self._clock.stamp(state.microseconds, arrival)
        if self._clock.restarts > restarts:
            self._counts['restarts'] += 1
        elif self._expected is not None:
            self._counts['frames lost'] += (state.sequence - self._expected) & 0xFFFF
        self._expected = (state.sequence + 1) & 0xFFFF
        for bit, meaning in FLAGS.items():
            self._counts[meaning] += bool(state.flags & bit)
        angles = (2 * math.pi * state.arm / info.arm_counts, 2 * math.pi * state.pendulum / info.pendulum_counts)
        return [Sample('joint_states', stamp, {'': angles}), Sample('applied_command', stamp, {'': (state.applied,)})]

    def write(self, command: Command) -> None:
        """Send the command; the device tells in its next sample that it acts."""
        self._send(protocol.move(self._next(), float(command.values[0])))

    def stop(self) -> None:
        """Zero at once."""
        self._send(protocol.stop(self._next()))

    def _next(self) -> int:
        self._sequence = (self._sequence + 1) & 0xFFFF
        return self._sequence

    def _send(self, data: bytes) -> None:
        if self._serial is None:
            raise DeviceLost(f'{self.port} is not open.')
        try:
            self._serial.write(data)
        except OSError as error:
            raise DeviceLost(f'{self.port} does not take commands: {error}.') from error

    def close(self) -> None:
        """Close the port."""
        port, self._serial = self._serial, None
        if port is not None:
            with contextlib.suppress(OSError):  # it may be gone already
                port.close()

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)
