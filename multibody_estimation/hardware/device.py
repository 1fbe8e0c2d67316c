# SPDX-License-Identifier: Apache-2.0
"""`Device`: the one small interface between the driver and whatever moves, measures or replays; and the table of devices.

A device says as data what it gives (`Channel`) and what it takes (`Actuators`). The driver turns samples into messages by that
description alone, so a new device needs no change anywhere else. Other packages add devices by the entry-point group
``multibody_estimation.devices``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, get_args

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['Actuators', 'Channel', 'Command', 'Device', 'DeviceLost', 'Sample', 'device_names', 'load_device', 'make_device']

GROUP = 'multibody_estimation.devices'

BUILT_IN = {
    'simulated': 'multibody_estimation.hardware.simulated:Simulated',
    'serial': 'multibody_estimation.hardware.serial_furuta:SerialFuruta',
    'can': 'multibody_estimation.hardware.can_strain:CanStrain',
    'mujoco': 'multibody_estimation.hardware.mujoco_icub:MujocoIcub',
    'simulated_strain': 'multibody_estimation.hardware.simulated_strain:SimulatedStrain',
    'replay': 'multibody_estimation.hardware.replay:Replay',
}
"""Devices of this package, for a source tree whose entry points are not installed."""

KINDS = ('torque', 'voltage')


class DeviceLost(EstimationError):
    """The device does not answer any more or never did; opening it again may help."""


@dataclass(frozen=True)
class Channel:
    """One message stream of a device."""

    topic: str
    """Relative topic, e.g. ``joint_states``."""
    message_type: str
    """One of `recording.topics.TABLE`."""
    signal: str
    """Base name of its signals, as `recording.topics` names them, e.g. ``encoders`` or ``imu``."""
    columns: tuple[str, ...] = ()
    """Joint names for JointState and ActuatorCommand; empty where the message has fixed fields."""
    frame: str = ''
    """``header.frame_id``."""
    rate: float = 0.0
    """Nominal rate in Hz; 0: unknown."""
    noise: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Standard deviations by part, e.g. ``{'/accelerometer': (0.05, 0.05, 0.05)}``, in SI units; for covariances."""
    serial: str = ''
    """Serial number of the sensor (RawStrain)."""
    unit: str = ''
    """``V`` for voltages, otherwise as the table has it."""


@dataclass(frozen=True)
class Sample:
    """One reading of a channel."""

    topic: str
    """Topic of the channel."""
    stamp: int
    """Instant of the measurement on the host's clock, in nanoseconds; made from the device's own clock where it has one."""
    parts: Mapping[str, Sequence[float]]
    """Values by part (suffix of `recording.topics.Part`), in SI units; the main part is ``''``."""


@dataclass(frozen=True)
class Actuators:
    """What a device can be told."""

    joints: tuple[str, ...] = ()
    """Joints that can be driven; none for a pure sensor."""
    kind: str = 'torque'
    """``torque`` (N m, N) or ``voltage`` (V)."""
    limit: tuple[float, ...] = ()
    """Largest magnitude per joint, in that unit; the driver clips to it. Empty: no limit known."""


@dataclass(frozen=True)
class Command:
    """What the actuators shall do from now on."""

    values: tuple[float, ...]
    """One per joint of `Actuators.joints`, N m, N or V."""
    stamp: int = 0
    """When it was given, host clock in nanoseconds."""


class Device(ABC):
    """A piece of hardware, or something that behaves like one. Subclasses are dataclasses whose fields are the options."""

    @property
    @abstractmethod
    def channels(self) -> tuple[Channel, ...]:
        """What the device gives; may depend on the options, must not need an open device."""

    @property
    def actuators(self) -> Actuators:
        """What the device takes."""
        return Actuators()

    @property
    def truth(self) -> Mapping[str, float]:
        """True parameters by dotted name, where the device is a simulation."""
        return {}

    @abstractmethod
    def open(self) -> None:
        """Connect; raise `DeviceLost` with a sentence where that fails. May be called again after `close`."""

    @abstractmethod
    def read(self, timeout: float) -> list[Sample]:
        """Return what was measured since the last call, waiting at most ``timeout`` seconds; raise `DeviceLost` when it is gone."""

    def write(self, command: Command) -> int | None:
        """Send a command; return the stamp from which it acts (ns), None: from the command's own. A pure sensor ignores it."""
        del command
        return None

    def stop(self) -> int | None:
        """Put zero torque on the actuators, as far as the device can still be reached; return since when, as `write` does."""
        return self.write(Command((0.0,) * len(self.actuators.joints))) if self.actuators.joints else None

    @abstractmethod
    def close(self) -> None:
        """Let go; never raises, may be called twice."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What went wrong so far, e.g. ``{'frames with a wrong checksum': 3}``; keys are shown to people."""
        return {}

    @property
    def finished(self) -> bool:
        """True when nothing more will come (the end of a replayed bag)."""
        return False

    def __enter__(self) -> 'Device':
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _entries() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def device_names() -> tuple[str, ...]:
    """Names of all devices that can be made, own and plugged in."""
    return tuple(sorted({*BUILT_IN, *_entries()}))


def load_device(name: str) -> type[Device]:
    """Return the class of a device by its name."""
    entries = _entries()
    try:
        if name in entries:
            return entries[name].load()
        if name in BUILT_IN:
            module, _, attribute = BUILT_IN[name].partition(':')
            return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise EstimationError(f"The device '{name}' needs a package that is not installed: {error}.") from error
    raise EstimationError(f"There is no device '{name}'.{did_you_mean(name, device_names())}")


def make_device(name: str, options: Mapping[str, Any] | Iterable[str] = ()) -> Device:
    """Make a device by name with its options: a mapping, or texts of the form ``key=value``; unknown ones are errors."""
    cls = load_device(name)
    if not isinstance(options, Mapping):
        options = dict(_split(text) for text in options)
    known: dict[str, Any] = {f.name: f for f in fields(cls) if f.init} if is_dataclass(cls) else {}
    for key in options:
        if key not in known:
            raise EstimationError(f"The device '{name}' has no option '{key}'.{did_you_mean(key, known)}")
    return cls(**{key: _convert(name, known[key], value) for key, value in options.items()})


def _split(text: str) -> tuple[str, str]:
    key, sign, value = text.partition('=')
    if not sign:
        raise EstimationError(f"'{text}' is no option; write it as key=value.")
    return key, value


def _convert(name: str, option: Any, value: Any) -> Any:
    """Bring a text or a number into the type of the option's default."""
    kind = type(option.default)
    if isinstance(value, kind) or kind not in (int, float, bool, str, tuple):
        return value
    try:
        if kind is bool:
            return {'true': True, 'false': False, '1': True, '0': False}[str(value).lower()]
        if kind is tuple:
            # Parts that hold commas themselves, as pushes and loads do, are separated by semicolons.
            separator = option.metadata.get('separator', ',')
            parts = value.split(';' if ';' in value else separator) if isinstance(value, str) else value
            inner = next((a for a in get_args(option.type) if a in (int, float, str)), None)
            return tuple(inner(p) if inner else p for p in parts if p != '')
        return kind(value)
    except (KeyError, TypeError, ValueError):
        raise EstimationError(f"The device '{name}' needs a {kind.__name__} for '{option.name}', not {value!r}.") from None
