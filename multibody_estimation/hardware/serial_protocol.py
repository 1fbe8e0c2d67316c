# SPDX-License-Identifier: Apache-2.0
"""The wire between the host and a small robot's microcontroller: frames in COBS, a checksum, sequence numbers, device time.

Described for people in docs/serial_protocol.md; the same in C++ stands in docs/firmware/furuta/furuta_protocol.h, and a test holds
the two together. All numbers are little-endian.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ['Decoder', 'Info', 'State', 'cobs_decode', 'cobs_encode', 'crc16', 'frame', 'hello', 'move', 'stop']

VERSION = 1
STATE, INFO, COMMAND, HELLO, STOP = 0x01, 0x02, 0x10, 0x11, 0x12
LONGEST = 64
"""Bytes of a frame at most; more without a delimiter is noise."""

_STATE = struct.Struct('<BHIiifB')
_INFO = struct.Struct('<BHBHiiBfH')
_COMMAND = struct.Struct('<BHf')
_HELLO = struct.Struct('<BHB')
_STOP = struct.Struct('<BH')
KINDS = ('torque', 'voltage')


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 0x1021, start 0xFFFF; of b'123456789' it is 0x29B1."""
    crc = 0xFFFF
    for byte in data:
        crc = ((crc << 8) & 0xFFFF) ^ _TABLE[(crc >> 8) ^ byte]
    return crc


def _make_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
        table.append(crc)
    return table


_TABLE = _make_table()


def cobs_encode(data: bytes) -> bytes:
    """Consistent overhead byte stuffing: the same without zeros, one byte longer (for fewer than 254 bytes)."""
    out = bytearray()
    for block in data.split(b'\0'):
        while len(block) >= 254:
            out += b'\xff' + block[:254]
            block = block[254:]
        out.append(len(block) + 1)
        out += block
    return bytes(out)


def cobs_decode(data: bytes) -> bytes | None:
    """Undo `cobs_encode`; None where it is no such thing."""
    out, at = bytearray(), 0
    while at < len(data):
        code = data[at]
        if code == 0 or at + code > len(data):
            return None
        out += data[at + 1 : at + code]
        at += code
        if code < 255 and at < len(data):
            out.append(0)
    return bytes(out)


def frame(payload: bytes) -> bytes:
    """Payload with its checksum, stuffed and closed by a zero."""
    return cobs_encode(payload + struct.pack('<H', crc16(payload))) + b'\0'


def hello(sequence: int) -> bytes:
    """Ask the device who it is; it answers with `Info` and begins to send `State`."""
    return frame(_HELLO.pack(HELLO, sequence & 0xFFFF, VERSION))


def move(sequence: int, value: float) -> bytes:
    """Command for the motor in N m or V; valid until the device's own timeout."""
    return frame(_COMMAND.pack(COMMAND, sequence & 0xFFFF, value))


def stop(sequence: int) -> bytes:
    """Zero at once."""
    return frame(_STOP.pack(STOP, sequence & 0xFFFF))


@dataclass(frozen=True)
class State:
    """One sampling instant of the device."""

    sequence: int
    """Counts samples, modulo 65536: a step other than 1 means lost frames."""
    microseconds: int
    """Device clock at the reading of the encoders, modulo 2^32."""
    arm: int
    """Encoder counts since power-up."""
    pendulum: int
    applied: float
    """What drives the motor from this instant on, N m or V."""
    flags: int
    """1: the command ran out and was set to zero; 2: it was cut to the limit; 4: stop was asked for."""

    def pack(self) -> bytes:
        """Return the frame."""
        return frame(
            _STATE.pack(
                STATE, self.sequence & 0xFFFF, self.microseconds & 0xFFFFFFFF, self.arm, self.pendulum, self.applied, self.flags
            )
        )


@dataclass(frozen=True)
class Info:
    """What the device is."""

    sequence: int
    version: int
    rate: int
    """State frames per second."""
    arm_counts: int
    """Encoder counts per turn; negative turns the sign."""
    pendulum_counts: int
    kind: str
    """``torque`` (N m) or ``voltage`` (V)."""
    limit: float
    """Largest command in that unit."""
    timeout: int
    """Milliseconds after which the device itself sets an old command to zero."""

    def pack(self) -> bytes:
        """Return the frame."""
        return frame(
            _INFO.pack(INFO, self.sequence & 0xFFFF, self.version, self.rate, self.arm_counts, self.pendulum_counts,
                       KINDS.index(self.kind), self.limit, self.timeout)
        )  # fmt: skip


@dataclass
class Decoder:
    """Bytes in, messages out; whatever is broken is counted and skipped up to the next zero."""

    wrong: int = 0
    """Frames with a wrong checksum or stuffing."""
    unknown: int = 0
    """Frames that are sound but of no known type or length."""
    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[State | Info | tuple[int, int, float]]:
        """Yield `State`, `Info`, or for frames to a device (type, sequence, value)."""
        *whole, rest = (bytes(self._rest) + data).split(b'\0')
        if len(rest) > LONGEST:
            self.wrong += 1
            rest = b''
        self._rest = bytearray(rest)
        for stuffed in whole:
            if stuffed:
                message = self._decode(stuffed)
                if message is not None:
                    yield message

    def _decode(self, stuffed: bytes) -> State | Info | tuple[int, int, float] | None:
        data = cobs_decode(stuffed)
        if data is None or len(data) < 5 or crc16(data[:-2]) != int.from_bytes(data[-2:], 'little'):
            self.wrong += 1
            return None
        body = data[:-2]
        try:
            if body[0] == STATE:
                return State(*_STATE.unpack(body)[1:])
            if body[0] == INFO:
                _, sequence, version, rate, arm, pendulum, kind, limit, timeout = _INFO.unpack(body)
                return Info(sequence, version, rate, arm, pendulum, KINDS[kind], limit, timeout)
            if body[0] == COMMAND:
                return _COMMAND.unpack(body)
            if body[0] == HELLO:
                return _HELLO.unpack(body)
            if body[0] == STOP:
                return (*_STOP.unpack(body), 0.0)
        except (struct.error, IndexError):
            pass
        self.unknown += 1
        return None
