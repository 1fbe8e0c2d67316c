# SPDX-License-Identifier: Apache-2.0
"""`read_csv`: a table with a header line becomes a `Window`; a small mapping says which column is what, in which unit."""

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.window import NANOSECONDS, Signal, Window

__all__ = ['read_csv']

TIME_UNITS = {'s': NANOSECONDS, 'ms': 1_000_000, 'us': 1_000, 'ns': 1}

UNITS = {
    'deg': ('rad', math.pi / 180), 'rev': ('rad', 2 * math.pi), 'deg/s': ('rad/s', math.pi / 180), 'rpm': ('rad/s', 2 * math.pi / 60),
    'mm': ('m', 1e-3), 'cm': ('m', 1e-2), 'mm/s': ('m/s', 1e-3), 'g': ('m/s^2', 9.80665), 'mV': ('V', 1e-3), 'mA': ('A', 1e-3),
    'mN m': ('N m', 1e-3), 'N mm': ('N m', 1e-3), 'N cm': ('N m', 1e-2), 'kN': ('N', 1e3),
}  # fmt: skip
"""Units that are turned into SI; every other unit is kept as it is written."""

TOP = ('time', 'signals', 'delimiter', 'truth')
SIGNAL = ('columns', 'unit', 'noise', 'frame')
COLUMN = ('column', 'unit', 'sign', 'scale', 'offset')

EXAMPLE = "{'time': 't', 'signals': {'encoders': {'unit': 'deg', 'columns': {'arm': 'theta', 'pendulum': 'phi'}}}}"


def read_csv(path: str | Path, mapping: str | Path | Mapping[str, Any]) -> Window:
    """Read a CSV file into a `Window`.

    mapping: a YAML file or the same as a dictionary::

        time: {column: t, unit: ms}                 # or just `time: t` in seconds; s, ms, us, ns
        delimiter: ';'                              # default: a comma
        signals:
          encoders:
            unit: deg                               # turned into SI: rad
            noise: 0.1                              # standard deviation, in the unit above
            columns:
              arm: theta                            # name of the joint: column of the file
              pendulum: {column: phi, sign: -1, offset: 180, unit: deg}
          command: {unit: V, columns: {arm: u}}
        truth: {arm.damping: 0.001}                 # where it is known

    A value becomes ``sign * scale * (cell + offset)`` in the column's unit and is then turned into SI. Empty cells are samples
    that are not there. Wrong keys, columns and cells are errors that name them.
    """
    path = Path(path)
    rules, where = _load(mapping)
    _check_keys(rules, TOP, where)
    signals = rules.get('signals')
    if not isinstance(signals, Mapping) or not signals:
        raise EstimationError(f'{where}: says no signals. A mapping looks like {EXAMPLE}.')
    time = rules.get('time')
    time = {'column': time} if isinstance(time, str) else time
    if not isinstance(time, Mapping) or 'column' not in time:
        raise EstimationError(f'{where}: does not say which column is the time. A mapping looks like {EXAMPLE}.')
    _check_keys(time, ('column', 'unit'), f'{where}, time')
    unit = str(time.get('unit', 's'))
    if unit not in TIME_UNITS:
        raise EstimationError(f"{where}, time: unit '{unit}' is unknown.{did_you_mean(unit, TIME_UNITS)}")
    plans = {str(name): _plan(str(name), rule, where) for name, rule in signals.items()}
    needed = [str(time['column']), *(c['column'] for plan in plans.values() for c in plan['columns'])]
    table = _read(path, list(dict.fromkeys(needed)), str(rules.get('delimiter', ',')))
    clock = table[str(time['column'])]
    bad = np.flatnonzero(~np.isfinite(clock))
    if len(bad):
        raise EstimationError(f"{path} row {bad[0] + 1}, column '{time['column']}': the time is missing. Remove that row.")
    # Whole nanoseconds and seconds apart, for a float cannot hold today's date to the nanosecond.
    whole = np.floor(clock)
    stamps = whole.astype(np.int64) * TIME_UNITS[unit] + np.round((clock - whole) * TIME_UNITS[unit]).astype(np.int64)
    made = [_signal(name, plan, table, stamps) for name, plan in plans.items()]
    return Window.gather(made, source=str(path), truth=rules.get('truth') or {})


def _load(mapping: str | Path | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    if isinstance(mapping, Mapping):
        return mapping, 'the mapping'
    file = Path(mapping)
    try:
        content = yaml.safe_load(file.read_text(encoding='utf-8'))
    except OSError as error:
        raise EstimationError(f'{file} cannot be read: {error.strerror}.') from error
    except yaml.YAMLError as error:
        raise EstimationError(f'{file} is no YAML: {error}') from error
    if not isinstance(content, Mapping):
        raise EstimationError(f'{file}: must be a mapping. It looks like {EXAMPLE}.')
    return content, str(file)


def _check_keys(rule: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in rule:
        if key not in known:
            raise EstimationError(f"{where}: unknown key '{key}'.{did_you_mean(str(key), known)}")


def _plan(name: str, rule: Any, where: str) -> dict[str, Any]:
    """Check what the mapping says about one signal, and fill in what it leaves out."""
    where = f'{where}, signal {name}'
    if not isinstance(rule, Mapping) or not rule.get('columns'):
        raise EstimationError(f'{where}: needs `columns`, e.g. {{columns: {{arm: theta}}, unit: deg}}.')
    _check_keys(rule, SIGNAL, where)
    columns = rule['columns']
    columns = {c: c for c in columns} if isinstance(columns, list) else columns
    if not isinstance(columns, Mapping):
        raise EstimationError(f'{where}: `columns` must be a list of columns or a mapping of names to columns.')
    out = []
    for label, column in columns.items():
        one = dict(column) if isinstance(column, Mapping) else {'column': column}
        _check_keys(one, COLUMN, f'{where}, column {label}')
        if 'column' not in one:
            raise EstimationError(f'{where}, column {label}: does not say `column`.')
        unit = str(one.get('unit', rule.get('unit', '')))
        si, factor = UNITS.get(unit, (unit, 1.0))
        numbers = {}
        for key, default in (('sign', 1), ('scale', 1.0), ('offset', 0.0)):
            try:
                numbers[key] = float(one.get(key, default))
            except (TypeError, ValueError):
                raise EstimationError(f'{where}, column {label}: {key} must be a number, not {one[key]!r}.') from None
        if numbers['sign'] not in (1.0, -1.0):
            raise EstimationError(f'{where}, column {label}: sign must be 1 or -1, not {one["sign"]!r}. Use scale for a factor.')
        gain = numbers['sign'] * numbers['scale'] * factor
        out.append({'label': str(label), 'column': str(one['column']), 'gain': gain, 'offset': numbers['offset'], 'unit': si})
    units = {str(c['unit']) for c in out}
    if len(units) > 1:
        raise EstimationError(f'{where}: its columns have different units ({", ".join(sorted(units))}). Make them two signals.')
    noise = np.atleast_1d(np.asarray(rule.get('noise', ()), dtype=float)) * UNITS.get(str(rule.get('unit', '')), ('', 1.0))[1]
    return {'columns': out, 'unit': out[0]['unit'], 'noise': tuple(noise.tolist()), 'frame': str(rule.get('frame', ''))}


def _signal(name: str, plan: dict[str, Any], table: Mapping[str, np.ndarray], stamps: np.ndarray) -> Signal:
    values = np.stack([c['gain'] * (table[c['column']] + c['offset']) for c in plan['columns']], axis=1)
    there = ~np.isnan(values).all(axis=1)
    labels = tuple(c['label'] for c in plan['columns'])
    return Signal(name, stamps[there], values[there], labels, plan['unit'], plan['frame'], plan['noise'])


def _read(path: Path, needed: list[str], delimiter: str) -> dict[str, np.ndarray]:
    """Return the needed columns as numbers; empty cells are NaN."""
    try:
        with path.open(newline='', encoding='utf-8-sig') as stream:
            lines = csv.reader(stream, delimiter=delimiter)
            header = [cell.strip() for cell in next(lines, [])]
            for name in needed:
                if name not in header:
                    raise EstimationError(f"{path}: no column '{name}'.{did_you_mean(name, header)}")
            places = [header.index(name) for name in needed]
            rows = []
            for number, cells in enumerate(lines, start=1):
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise EstimationError(
                        f'{path} row {number} (line {lines.line_num}): {len(cells)} cells, the header has {len(header)}.'
                    )
                try:
                    rows.append([float(cells[p] or 'nan') for p in places])
                except ValueError:
                    rows.append([_number(cells[p], path, number, lines.line_num, header[p]) for p in places])
    except OSError as error:
        raise EstimationError(f'{path} cannot be read: {error.strerror}.') from error
    except UnicodeDecodeError as error:
        raise EstimationError(f'{path} is no text file (UTF-8): {error}') from error
    if not rows:
        raise EstimationError(f'{path} has no rows below its header.')
    return dict(zip(needed, np.array(rows, dtype=float).T))


def _number(cell: str, path: Path, row: int, line: int, column: str) -> float:
    if not cell.strip():
        return math.nan
    try:
        return float(cell)
    except ValueError:
        raise EstimationError(f"{path} row {row} (line {line}), column '{column}': '{cell}' is no number.") from None
