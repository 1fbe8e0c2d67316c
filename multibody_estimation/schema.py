# SPDX-License-Identifier: Apache-2.0
"""Settings from YAML, checked against a schema: a complaint names the file, the line, the key and the nearest known one.

A schema is made of: a dict (keys to schemas; the key None takes any name), a list (repeats its one entry), a tuple (a choice of texts), and the
scalars `Text`, `Flag`, `Number`, `Numbers` (one or a list) and `Quantity(unit)`, a number with or without its unit: ``4 ms`` for a Quantity('s').
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['Checked', 'Flag', 'Number', 'Numbers', 'Quantity', 'Text', 'read_yaml']


class Text:
    """Any text."""


class Flag:
    """true or false."""


class Number:
    """A finite number."""


class Numbers:
    """A finite number or a list of them."""


UNITS = {
    's': {'s': 1.0, 'ms': 1e-3, 'us': 1e-6}, 'rad': {'rad': 1.0, 'mrad': 1e-3, 'deg': math.pi / 180}, 'm': {'m': 1.0, 'mm': 1e-3, 'cm': 1e-2},
    'kg': {'kg': 1.0, 'g': 1e-3}, 'N m': {'N m': 1.0, 'mN m': 1e-3, 'Nm': 1.0}, 'N': {'N': 1.0}, 'V': {'V': 1.0, 'mV': 1e-3},
    'Hz': {'Hz': 1.0, 'kHz': 1e3},
}  # fmt: skip


@dataclass(frozen=True)
class Quantity:
    """A finite number in SI, or a text with its unit, e.g. ``0.1 deg``; several units where the quantity depends on the joint (``rad|m``)."""

    unit: str
    many: bool = False
    """Whether a list is possible too."""

    def convert(self, text: str) -> float:
        """The number in SI; raises ValueError with the reason."""
        number, _, unit = text.strip().partition(' ')
        value = float(number)
        if not math.isfinite(value):
            raise ValueError('a finite number is needed')
        unit = unit.strip()
        if not unit:
            return value
        known = {u: factor for base in self.unit.split('|') for u, factor in UNITS.get(base, {base: 1.0}).items()}
        if unit not in known:
            raise ValueError(f"the unit '{unit}' does not fit; it is given in {' or '.join(known)}")
        return value * known[unit]


@dataclass(frozen=True)
class Checked:
    """Content of a file that fits its schema, with the line of every key."""

    path: Path
    values: dict[str, Any]
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)

    def complain(self, what: str, *keys: str) -> EstimationError:
        """An error about a key, naming its file and line."""
        line = next((self.lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self.lines), None)
        return EstimationError(f'{self.path}{f" line {line}" if line else ""}: {what}')


def read_yaml(path: str | Path, schema: dict) -> Checked:
    """Read a YAML file and check it."""
    path = Path(path)
    try:
        text = path.read_text(encoding='utf-8')
    except OSError as error:
        raise EstimationError(f'{path} cannot be read: {error.strerror}.') from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, 'problem_mark', None)
        where = f' line {mark.line + 1}' if mark else ''
        raise EstimationError(f'{path}{where}: this is no YAML ({getattr(error, "problem", None) or error}).') from None
    if node is None:
        raise EstimationError(f'{path} is empty.')
    lines: dict[tuple[str, ...], int] = {}
    return Checked(path, _read(node, schema, path, (), lines), lines)


def _read(node: yaml.Node, schema: Any, path: Path, at: tuple[str, ...], lines: dict) -> Any:
    label = '.'.join(at) or 'the file'

    def complain(place: yaml.Node, what: str) -> EstimationError:
        return EstimationError(f'{path} line {place.start_mark.line + 1}: {what}')

    if isinstance(schema, dict):
        if isinstance(node, yaml.ScalarNode) and node.value in ('', 'null', '~'):
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise complain(node, f'{label} must be a mapping of keys to values.')
        found: dict[str, Any] = {}
        for key, inner in node.value:
            name = str(key.value)
            if None not in schema and name not in schema:
                raise complain(key, f"'{name}' is no key of {label}.{did_you_mean(name, schema)}")
            if name in found:
                raise complain(key, f"'{name}' is there twice.")
            lines[(*at, name)] = key.start_mark.line + 1
            found[name] = _read(inner, schema.get(name, schema.get(None)), path, (*at, name), lines)
        return found
    if isinstance(schema, list):
        if not isinstance(node, yaml.SequenceNode):
            raise complain(node, f'{label} must be a list.')
        return [_read(inner, schema[0], path, at, lines) for inner in node.value]
    if isinstance(node, yaml.SequenceNode) and (schema is Numbers or (isinstance(schema, Quantity) and schema.many)):
        single: Any = Quantity(schema.unit) if isinstance(schema, Quantity) else Number
        return [_read(inner, single, path, at, lines) for inner in node.value]
    if not isinstance(node, yaml.ScalarNode):
        raise complain(node, f'{label} must be a single value.')
    return _scalar(node, schema, label, complain)


def _scalar(node: yaml.ScalarNode, schema: Any, label: str, complain: Any) -> Any:
    text = node.value
    if isinstance(schema, tuple):
        if text not in schema:
            raise complain(node, f"'{text}' is not possible for {label}.{did_you_mean(text, schema)}")
        return text
    if schema is Text:
        return text
    if schema is Flag:
        if text.lower() not in ('true', 'false'):
            raise complain(node, f"{label} is '{text}'; true or false is needed.")
        return text.lower() == 'true'
    quantity = schema if isinstance(schema, Quantity) else Quantity('')
    try:
        return quantity.convert(text)
    except ValueError as error:
        why = (
            str(error)
            if 'could not convert' not in str(error)
            else f'a number{f" in {quantity.unit}" if quantity.unit else ""} is needed'
        )
        raise complain(node, f"{label} is '{text}': {why}.") from None
