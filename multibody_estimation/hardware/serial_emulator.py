# SPDX-License-Identifier: Apache-2.0
"""A microcontroller that exists only here: speaks `serial_protocol` on a pseudo-terminal, with the simulated pendulum behind it.

``python -m multibody_estimation.hardware.serial_emulator furuta_port`` puts one at that path, to try the serial driver without hardware.
"""

import contextlib
import math
import os
import select
import sys
import threading
import time
import tty
from pathlib import Path
from random import Random

from multibody_estimation.hardware import serial_protocol as protocol
from multibody_estimation.hardware.device import Command
from multibody_estimation.hardware.simulated import Simulated

__all__ = ['SerialEmulator']

COUNTS = 2048
GAIN = 0.01
"""N m per V of the emulated motor; back-EMF is the pendulum's arm damping."""


class SerialEmulator:
    """Appears at a path like a serial port does; `unplug` and `plug` it, corrupt its bytes, restart it."""

    def __init__(self, path: str | Path, *, rate: int = 200, corrupted: float = 0.0, timeout: float = 0.1, kind: str = 'voltage', version: int = protocol.VERSION, seed: int = 0):  # fmt: skip
        """Prepare a device at ``path``.

        corrupted: share of sent frames with one wrong byte. timeout: seconds a command is valid.
        """
        self.path, self.rate, self.corrupted, self.timeout = Path(path), rate, corrupted, timeout
        self.info = protocol.Info(0, version, rate, COUNTS, -COUNTS, kind, 6.0, round(timeout * 1000))
        self.robot = Simulated('furuta', rate=rate, noise=0.0, realtime=False)
        self.robot.open()
        self.received: list[float] = []
        """Commands as they came."""
        self.damaged = 0
        self._random, self._thread, self._master = Random(seed), None, -1  # type: ignore[var-annotated]
        self.boot()

    def boot(self) -> None:
        """Start counting anew, as after a reset."""
        self._sequence, self._streaming = 0, False
        self._value, self._given, self._flags = 0.0, 0, 0

    def plug(self) -> 'SerialEmulator':
        """Make the port appear."""
        self._master, slave = os.openpty()
        tty.setraw(slave)
        os.set_blocking(self._master, False)
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(os.ttyname(slave))
        os.close(slave)
        self.boot()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name='serial-emulator')  # type: ignore[assignment]
        self._thread.start()  # type: ignore[attr-defined]
        return self

    def unplug(self) -> None:
        """Make the port vanish."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            os.close(self._master)
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> 'SerialEmulator':
        return self.plug()

    def __exit__(self, *error: object) -> None:
        self.unplug()

    def _run(self) -> None:
        decoder, due = protocol.Decoder(), time.monotonic()
        while not self._stop.is_set():
            readable, _, _ = select.select([self._master], [], [], max(0.0, due - time.monotonic()))
            if readable:
                try:
                    for message in decoder.feed(os.read(self._master, 4096)):
                        if isinstance(message, tuple):
                            self._obey(*message)
                except OSError:
                    time.sleep(0.002)  # nobody has opened the other end
            if time.monotonic() >= due:
                due += 1 / self.rate
                self._tick()

    def _obey(self, kind: int, sequence: int, value: float) -> None:
        if kind == protocol.HELLO:
            self._streaming = True
            self._write(self.info.pack())
        elif kind == protocol.COMMAND:
            self.received.append(value)
            self._flags = 2 if abs(value) > self.info.limit else 0
            self._value, self._given = max(-self.info.limit, min(self.info.limit, value)), self._sequence
        elif kind == protocol.STOP:
            self._value, self._flags = 0.0, 4

    def _tick(self) -> None:
        """What the firmware's timer does: read the encoders, then put the command on the motor, then tell."""
        angles = self.robot.read(0.0)[0].parts['']
        if self._value and self._sequence - self._given > self.timeout * self.rate:
            self._value, self._flags = 0.0, 1
        torque = self._value * (GAIN if self.info.kind == 'voltage' else 1.0)
        self.robot.write(Command((torque,), 0))
        counts = [round(a / (2 * math.pi) * COUNTS) for a in angles]
        now = self._sequence * 1_000_000 // self.rate  # the timer that samples is the clock, as on a microcontroller
        if self._streaming:
            self._write(protocol.State(self._sequence, now, counts[0], -counts[1], self._value, self._flags).pack())
        self._sequence += 1

    def _write(self, data: bytes) -> None:
        if self._random.random() < self.corrupted:
            at = self._random.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ self._random.randrange(1, 256)]) + data[at + 1 :]
            self.damaged += 1
        with contextlib.suppress(OSError):  # nobody reads: the bytes are lost, as on a real wire
            os.write(self._master, data)


if __name__ == '__main__':
    with SerialEmulator(sys.argv[1] if len(sys.argv) > 1 else 'furuta_port') as emulator:
        print(f'A Furuta pendulum is at {emulator.path}. End with Ctrl-C.')
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
