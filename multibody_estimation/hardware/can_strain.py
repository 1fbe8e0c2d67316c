# SPDX-License-Identifier: Apache-2.0
"""Six-axis force/torque sensors as on the iCub (boards strain and strain2) on a CAN bus, through python-can.

The public broadcast, as the firmware of those boards sends it: identifier of 11 bits = class (3 bits, 3: periodic, analog sensors), address
of the board (4 bits), type (4 bits). Type 0xA carries channels 0 to 2 ("force"), 0xB channels 3 to 5 ("torque"), each as three unsigned
16-bit numbers, little-endian, with zero at 0x8000. A seventh byte tells of saturation: bits 0-1 whether there is any, then two bits
per channel (1 low, 2 high). Type 0xE carries the temperature (mask, then tenths of a degree, signed 16 bits).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from multibody_estimation.errors import EstimationError
from multibody_estimation.hardware.device import Channel, Device, DeviceLost, Sample

__all__ = ['CanStrain', 'force_torque_frames', 'temperature_frame']

POLLING, PERIODIC = 2, 3
FORCE, TORQUE, THERMOMETER = 0xA, 0xB, 0xE
SET_TXMODE, SET_PERIOD = 0x07, 0x08
CALIBRATED, SILENT, RAW = 0, 1, 3
ZERO = 0x8000
EDGE = 1000
"""Counts from an end of the range within which the boards call a channel saturated."""


def force_torque_frames(address: int, counts: Any, saturated: Any = None) -> list[tuple[int, bytes]]:
    """Identifier and data of the two frames for six signed counts, as a board sends them."""
    out = []
    for kind, first in ((FORCE, 0), (TORQUE, 3)):
        data = struct.pack('<3H', *(max(0, min(0xFFFF, round(c) + ZERO)) for c in counts[first : first + 3]))
        flags = saturated[first : first + 3] if saturated is not None else (0, 0, 0)
        if any(flags):
            data += bytes([1 | flags[0] << 2 | flags[1] << 4 | flags[2] << 6])
        out.append((PERIODIC << 8 | address << 4 | kind, data))
    return out


def temperature_frame(address: int, celsius: float) -> tuple[int, bytes]:
    """Identifier and data of a thermometer frame."""
    return PERIODIC << 8 | address << 4 | THERMOMETER, struct.pack('<Bhh', 1, round(10 * celsius), 0)


@dataclass
class _Board:
    """What is known of one sensor."""

    name: str
    force: tuple[int, list[float], list[bool]] | None = None
    """Stamp, counts and saturation of a force frame that waits for its torque frame."""
    temperature: float | None = None
    last: int = 0


@dataclass
class CanStrain(Device):
    """``ft/<name>/strain`` for every board; with ``calibrated`` the boards' own wrenches on ``ft/<name>/wrench`` instead."""

    port: str = 'can0'
    """Channel of the bus."""
    interface: str = 'socketcan'
    """Interface of python-can, e.g. socketcan, pcan, slcan, virtual."""
    boards: tuple[str, ...] = ('1:ft',)
    """``address:name`` of each sensor, address 1 to 14."""
    period: int = 10
    """Milliseconds between readings, set in the boards."""
    configure: bool = True
    """Whether to set the boards' period and mode on opening and to silence them on closing; False only listens."""
    calibrated: bool = False
    """Take the wrenches that the boards compute with the matrix stored in them, instead of raw counts."""
    full_scale: tuple[float, ...] = (2000.0, 2000.0, 2000.0, 40.0, 40.0, 40.0)
    """With ``calibrated``: N and N m at the end of the range, as set in the boards."""
    noise: float = 10.0
    """Standard deviation of the counts."""

    _bus: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._boards: dict[int, _Board] = {}
        for text in self.boards:
            address, sign, name = text.partition(':')
            if not sign or not address.isdigit() or not 1 <= int(address) <= 14 or not name:
                raise EstimationError(f"'{text}' is no board; write address:name with an address from 1 to 14, e.g. 13:l_arm_ft.")
            if int(address) in self._boards or name in [b.name for b in self._boards.values()]:
                raise EstimationError(f"'{text}': that address or name is given twice.")
            self._boards[int(address)] = _Board(name)
        if not 1 <= self.period <= 210:
            raise EstimationError(f'A period of {self.period} ms cannot be set; the boards take 1 to 210.')
        if len(self.full_scale) != 6:
            raise EstimationError(f'full_scale needs six numbers (N, N m), not {len(self.full_scale)}.')
        self._counts = dict.fromkeys(('force frames lost', 'torque frames lost', 'readings lost', 'readings saturated',
                                      'frames of wrong length', 'error frames'), 0)  # fmt: skip

    @property
    def channels(self) -> tuple[Channel, ...]:
        rate = 1000 / self.period
        if self.calibrated:
            noise = {'': tuple(self.noise * f / ZERO for f in self.full_scale)}
            return tuple(
                Channel(
                    f'ft/{b.name}/wrench',
                    'geometry_msgs/msg/WrenchStamped',
                    f'ft/{b.name}/wrench',
                    frame=b.name,
                    rate=rate,
                    noise=noise,
                )
                for b in self._boards.values()
            )
        return tuple(
            Channel(f'ft/{b.name}/strain', 'multibody_estimation/msg/RawStrain', f'ft/{b.name}/strain', frame=b.name, rate=rate,
                    noise={'': (self.noise,) * 6}, serial=f'{self.port}:{address}')
            for address, b in self._boards.items()
        )  # fmt: skip

    def open(self) -> None:
        """Connect to the bus and set the boards going."""
        try:
            import can
        except ModuleNotFoundError:
            raise EstimationError('The CAN device needs python-can: pip install python-can.') from None
        self.close()
        try:
            self._bus = can.Bus(channel=self.port, interface=self.interface)
        except (can.CanError, OSError, ValueError, NotImplementedError) as error:
            raise DeviceLost(f'The CAN bus {self.port} ({self.interface}) cannot be opened: {error}.') from error
        for board in self._boards.values():
            board.force, board.last = None, 0
        if self.configure:
            for address in self._boards:
                self._send(address, SET_PERIOD, self.period)
                self._send(address, SET_TXMODE, CALIBRATED if self.calibrated else RAW)

    def _send(self, address: int, command: int, value: int) -> None:
        import can

        try:
            self._bus.send(
                can.Message(arbitration_id=POLLING << 8 | address, data=[command, value], is_extended_id=False), timeout=0.1
            )
        except (can.CanError, OSError) as error:
            raise DeviceLost(
                f'The CAN bus {self.port} does not take messages: {error}. Is it up, with its bit rate set?'
            ) from error

    def read(self, timeout: float) -> list[Sample]:
        """Return the readings whose two frames have arrived."""
        import can

        if self._bus is None:
            raise DeviceLost(f'The CAN bus {self.port} is not open.')
        out: list[Sample] = []
        try:
            message = self._bus.recv(timeout)
            for _ in range(500):
                if message is None:
                    break
                out += self._take(message)
                message = self._bus.recv(0)
        except (can.CanError, OSError) as error:
            raise DeviceLost(f'The CAN bus {self.port} is gone: {error}.') from error
        return out

    def _take(self, message: Any) -> list[Sample]:
        if message.is_error_frame:
            self._counts['error frames'] += 1
            return []
        if message.is_extended_id or message.is_remote_frame or message.arbitration_id >> 8 != PERIODIC:
            return []
        board, kind = self._boards.get(message.arbitration_id >> 4 & 0xF), message.arbitration_id & 0xF
        if board is None or kind not in (FORCE, TORQUE, THERMOMETER):
            return []
        data = bytes(message.data)
        if kind == THERMOMETER:
            if len(data) >= 3 and data[0] & 1:
                board.temperature = struct.unpack_from('<h', data, 1)[0] / 10
            return []
        if not 6 <= len(data) <= 8:
            self._counts['frames of wrong length'] += 1
            return []
        counts, saturated = _decode(data)
        stamp = round(message.timestamp * 1e6) * 1000
        if kind == FORCE:
            self._counts['torque frames lost'] += board.force is not None
            board.force = (stamp, counts, saturated)
            return []
        waiting, board.force = board.force, None
        if waiting is None or not 0 <= stamp - waiting[0] < self.period * 1_000_000 // 2:
            # A torque frame that comes later than half a period belongs to a force frame that was lost, not to the one that waits.
            self._counts['force frames lost'] += 1
            self._counts['torque frames lost'] += waiting is not None
            return []
        return [self._sample(board, waiting[0], waiting[1] + counts, waiting[2] + saturated)]

    def _sample(self, board: _Board, stamp: int, counts: list[float], saturated: list[bool]) -> Sample:
        if board.last:
            self._counts['readings lost'] += max(0, round((stamp - board.last) / (self.period * 1e6)) - 1)
        board.last = stamp
        self._counts['readings saturated'] += any(saturated)
        if self.calibrated:
            wrench = [c / ZERO * full for c, full in zip(counts, self.full_scale)]
            return Sample(f'ft/{board.name}/wrench', stamp, {'': wrench})
        parts: dict[str, Any] = {'': counts, '/saturated': [float(s) for s in saturated]}
        if board.temperature is not None:
            parts['/temperature'] = (board.temperature,)
        return Sample(f'ft/{board.name}/strain', stamp, parts)

    def close(self) -> None:
        """Silence the boards and leave the bus."""
        bus, self._bus = self._bus, None
        if bus is None:
            return
        import can

        try:
            if self.configure:
                for address in self._boards:
                    message = can.Message(arbitration_id=POLLING << 8 | address, data=[SET_TXMODE, SILENT], is_extended_id=False)
                    bus.send(message, timeout=0.1)
        except (can.CanError, OSError):
            pass  # nobody is there to be silenced
        finally:
            bus.shutdown()

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)


def _decode(data: bytes) -> tuple[list[float], list[bool]]:
    """Signed counts and saturation of three channels."""
    raw = struct.unpack_from('<3H', data)
    saturated = [not EDGE <= value <= 0xFFFF - EDGE for value in raw]
    if len(data) > 6 and data[6] & 3:
        told = [bool(data[6] >> shift & 3) for shift in (2, 4, 6)]
        # The first generation of boards sets the flag without saying which channel.
        saturated = [a or b for a, b in zip(saturated, told)] if any(told) or any(saturated) else [True] * 3
    return [float(value - ZERO) for value in raw], saturated
