# SPDX-License-Identifier: Apache-2.0
"""What a driver does, without ROS: keep a device open, pass samples on, pass commands in, excite, and stop when in doubt."""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.hardware.device import KINDS, Channel, Command, Device, DeviceLost, Sample
from multibody_estimation.hardware.excitation import Excitation
from multibody_estimation.hardware.watchdog import State, Watchdog
from multibody_estimation.window import NANOSECONDS

__all__ = ['Driver']

APPLIED = 'applied_command'


class Driver:
    """Call `poll` in a loop (one thread) and publish what it returns; call `command`, `play` and `stop` from anywhere.

    Whatever reaches the actuators, from outside, from an excitation or as a zero from the watchdog, is returned by `poll` as a
    sample of the topic ``applied_command`` with the stamp from which it acts: estimators need what was done, not what was asked for.
    While an excitation plays, one command per sample, commands from outside are refused.
    """

    def __init__(
        self, device: Device, *, watchdog: Watchdog | None = None, excitation: Excitation | None = None, joint: str = ''
    ):
        """Take a device that is not open yet.

        joint: which joint the excitation drives; default: the first one.
        """
        self.device, self.watchdog = device, watchdog or Watchdog()
        self.excitation = excitation
        joints = device.actuators.joints
        if excitation and not joints:
            raise EstimationError('This device has no actuators: it cannot be excited.')
        if joint and joint not in joints:
            raise EstimationError(f"The device does not drive '{joint}'.{did_you_mean(joint, joints)}")
        self._driven = joints.index(joint) if joint else 0
        self._began: int | None = None
        self._held = (0.0,) * len(joints)
        self._told = self._seen = 0
        self._told_by_device = any(channel.topic == APPLIED for channel in device.channels)
        self._pending: Command | None = None
        self._stopping = False
        self.refusal = ''
        """Why the last command was not executed, as a sentence."""
        self.clipped = 0
        """Commands that were cut to the actuator's limit."""
        self.samples: dict[str, int] = {channel.topic: 0 for channel in self.channels}
        """Samples passed on, by topic."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What `poll` returns samples of."""
        own = self.device.channels
        actuators = self.device.actuators
        if not actuators.joints or self._told_by_device:
            return own
        unit = 'V' if actuators.kind == 'voltage' else ''
        return (*own, Channel(APPLIED, 'multibody_estimation/msg/ActuatorCommand', 'command', actuators.joints, unit=unit))

    @property
    def exciting(self) -> bool:
        """True until the excitation has ended."""
        return self.excitation is not None and (self._began is None or not self._ended)

    _ended = False

    def command(self, joints: Sequence[str], values: Sequence[float], kind: str, stamp: int, age: float = 0.0) -> bool:
        """Take a command from outside; False where it is not executed, with the reason in ``refusal``.

        joints in any order; kind: ``torque`` or ``voltage``; stamp: ns; age: seconds since the stamp, on the caller's clock.
        """
        actuators = self.device.actuators
        why = ''
        if kind not in KINDS or kind != actuators.kind:
            why = f"the command is a {kind}, the device takes '{actuators.kind}'."
        elif len(values) != len(joints):
            why = f'the command has {len(values)} values for {len(joints)} joints.'
        elif sorted(joints) != sorted(actuators.joints):
            odd = next((j for j in joints if j not in actuators.joints), '')
            why = f"'{odd}' is not driven.{did_you_mean(odd, actuators.joints)}" if odd else 'it must name all driven joints.'
        elif not all(math.isfinite(v) for v in values):
            why = 'a value is not finite.'
        elif age > self.watchdog.command_timeout:
            why = f'it is {age:.3f} s old, the limit is {self.watchdog.command_timeout:.3f} s.'
        elif self.exciting:
            why = 'the excitation is running.'
        if why:
            self.refusal = f'A command was not executed: {why}'
            return False
        ordered = [float(values[list(joints).index(j)]) for j in actuators.joints]
        self._pending = Command(self._clip(ordered), stamp)
        return True

    def play(self, excitation: Excitation) -> None:
        """Start an excitation with the next sample."""
        if not self.device.actuators.joints:
            raise EstimationError('This device has no actuators: it cannot be excited.')
        self._began, self._ended, self._pending = None, False, None
        self.excitation = excitation

    def stop(self) -> None:
        """Zero torque at once and no more excitation."""
        self._ended, self._stopping, self._pending = True, True, None

    def poll(self, timeout: float = 0.1) -> list[Sample]:
        """Do one round: connect where needed, obey, read; returns within about ``timeout`` seconds."""
        now = self._now()
        if self.watchdog.state is State.LOST and not self._connect(now, timeout):
            return []
        try:
            applied = self._obey(now)
            samples = self.device.read(timeout)
            self._seen = samples[-1].stamp if samples else self._seen
            now = self._now()
            if samples:
                self.watchdog.sampled(now)
                # Said again with every sample, so that a window of any length knows what is held.
                for stamp in sorted({s.stamp for s in samples[:-1]} - {samples[-1].stamp}) if self._held else ():
                    applied += self._tell(self._held, stamp) if stamp > self._told else []
                applied += self._excite(samples[-1].stamp, now)
            elif self.device.finished:
                self.watchdog.sampled(now)
            elif self.watchdog.stalled(now):
                raise DeviceLost(self.watchdog.reason)
            applied += self._obey(now)
            if samples and self._held and samples[-1].stamp > self._told:
                applied += self._tell(self._held, samples[-1].stamp)
            samples = samples + applied
        except DeviceLost as error:
            self.device.close()
            self._held = (0.0,) * len(self._held)
            self.watchdog.lost(self._now(), str(error))
            return []
        for sample in samples:
            self.samples[sample.topic] = self.samples.get(sample.topic, 0) + 1
        return samples

    def close(self) -> None:
        """Zero torque, then let go of the device."""
        if self.watchdog.state is not State.LOST:
            with contextlib.suppress(DeviceLost):
                self.device.stop()
        self.device.close()
        self.watchdog.lost(self._now(), 'Closed.')

    def report(self) -> Mapping[str, str]:
        """State in words and numbers for diagnostics, units in the keys."""
        now, dog = self._now(), self.watchdog
        return {
            'State': dog.state.value,
            'Reason': dog.reason,
            'Age of the last sample [s]': f'{dog.age(now):.3f}',
            'Reconnects': str(dog.reconnects),
            'Commands cut to the limit': str(self.clipped),
            'Last refused command': self.refusal,
            **{f'Samples on {topic}': str(count) for topic, count in self.samples.items()},
            **{key.capitalize(): str(count) for key, count in self.device.counts.items()},
        }

    def _connect(self, now: float, timeout: float) -> bool:
        if not self.watchdog.may_open(now):
            time.sleep(min(timeout, 0.02))
            return False
        try:
            self.device.open()
        except DeviceLost as error:
            self.device.close()
            self.watchdog.lost(self._now(), str(error))
            return False
        self.watchdog.opened(self._now())
        return True

    def _now(self) -> float:
        """Seconds of the clock the watchdog lives by: real time, or the device's own where it runs as fast as it is read."""
        return time.monotonic() if getattr(self.device, 'realtime', True) else self._seen / NANOSECONDS

    def _apply(self, values: tuple[float, ...], stamp: int) -> list[Sample]:
        """Write to the device; return what acts, and since when."""
        acts = self.device.write(Command(values, stamp))
        return self._tell(values, stamp if acts is None else acts)

    def _rest(self) -> list[Sample]:
        """Zero torque."""
        acts = self.device.stop()
        return self._tell((0.0,) * len(self._held), time.time_ns() if acts is None else acts) if self._held else []

    def _tell(self, values: tuple[float, ...], stamp: int) -> list[Sample]:
        # Of two commands with one stamp the later acts, so it must come later: a nanosecond is enough.
        self._told = max(stamp, self._told + 1)
        self._held = values
        return [] if self._told_by_device else [Sample(APPLIED, self._told, {'': values})]

    def _obey(self, now: float) -> list[Sample]:
        """Pass on what is due: a stop, a command, or zero because the last command is too old."""
        command, self._pending = self._pending, None
        if self._stopping:
            self._stopping = False
            self.watchdog.released()
            return self._rest()
        if command is not None:
            self.watchdog.commanded(now)
            return self._apply(command.values, max(command.stamp, time.time_ns()))
        if self.watchdog.must_stop(now):
            self.refusal = f'No command for {self.watchdog.command_timeout:.3f} s: zero torque.'
            return self._rest()
        return []

    def _excite(self, stamp: int, now: float) -> list[Sample]:
        if self.excitation is None or self._ended:
            return []
        if self._began is None:
            self._began = stamp
        elapsed = (stamp - self._began) / NANOSECONDS
        self._ended = elapsed >= self.excitation.duration
        values = [0.0] * len(self.device.actuators.joints)
        values[self._driven] = 0.0 if self._ended else self.excitation(elapsed)
        if self._ended:
            self.watchdog.released()
        else:
            self.watchdog.commanded(now)
        return self._apply(self._clip(values), stamp)

    def _clip(self, values: Sequence[float]) -> tuple[float, ...]:
        limit = self.device.actuators.limit or (math.inf,) * len(values)
        out = tuple(max(-m, min(m, v)) for v, m in zip(values, limit))
        self.clipped += out != tuple(values)
        return out
