# SPDX-License-Identifier: Apache-2.0
"""A live system in the terminal: topics with their rates, states, wrenches, parameters, what the nodes say of themselves.

Only drawing: a `Snapshot` in, something that rich prints out. Who fills it is no concern of this file.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ['Quantity', 'Snapshot', 'Status', 'Topic', 'draw']

LEVELS = {'ok': 'green', 'warn': 'yellow', 'error': 'red', 'stale': 'red'}
SHOWN = 30
"""Most rows of a table."""


@dataclass(frozen=True)
class Topic:
    """What is known of a topic."""

    name: str
    type: str
    rate: float
    """Messages per second over the last seconds; nan before two have come."""
    age: float
    """Seconds since the last message; infinite where none has come."""
    count: int
    publishers: int
    note: str = ''
    latched: bool = False
    """Told once and kept for who comes later: silence is nothing to worry about."""

    @property
    def silent(self) -> bool:
        """Whether messages should come and do not."""
        if self.latched or not self.count:
            return not self.publishers
        usual = 1 / self.rate if self.rate > 0 else 1.0
        return self.age > max(2.0, 5 * usual)


@dataclass(frozen=True)
class Quantity:
    """A number with its standard deviation (nan where it has none)."""

    name: str
    value: float
    deviation: float = math.nan
    unit: str = ''
    note: str = ''


@dataclass(frozen=True)
class Status:
    """A line of diagnostics."""

    name: str
    level: str
    """``ok``, ``warn``, ``error`` or ``stale``."""
    message: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """Everything that is shown."""

    topics: Sequence[Topic] = ()
    states: Mapping[str, Sequence[tuple[str, Sequence[Quantity]]]] = field(default_factory=dict)
    """By topic: joints (or links), each with its quantities."""
    parameters: Mapping[str, Sequence[Quantity]] = field(default_factory=dict)
    """By topic."""
    sentences: Mapping[str, str] = field(default_factory=dict)
    """How the solver behind a topic ended."""
    statuses: Sequence[Status] = ()
    title: str = ''


def told(value: float, deviation: float = math.nan) -> str:
    """A number as people read it, with as many digits as its standard deviation allows."""
    if not math.isfinite(value):
        return '–'
    if not math.isfinite(deviation) or deviation <= 0:
        return f'{value:.4g}' + (' not told' if math.isinf(deviation) else '')
    digits = 2 + max(0, math.ceil(math.log10(abs(value) / deviation))) if value else 2
    return f'{value:.{min(digits, 8)}g} ± {deviation:.2g}'


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=title, title_justify='left', title_style='bold', header_style='dim', box=None, padding=(0, 2, 0, 0), expand=False
    )
    for i, column in enumerate(columns):
        name, right = column.rstrip('>'), column.endswith('>')
        table.add_column(name, justify='right' if right else 'left', no_wrap=i == 0, overflow='fold')
    return table


def _topics(topics: Sequence[Topic]) -> Table:
    table = _table('Topics', 'topic', 'rate [Hz]>', 'age [s]>', 'messages>', 'type', '')
    for t in topics[:SHOWN]:
        style = 'yellow' if t.silent else ''
        note = t.note or ('silent' if t.silent else 'latched' if t.latched else '' if t.count else 'nothing yet')
        rate = f'{t.rate:.1f}' if math.isfinite(t.rate) and not t.latched else '–'
        age = f'{t.age:.1f}' if math.isfinite(t.age) else '–'
        table.add_row(t.name, rate, age, str(t.count), t.type.rsplit('/', 1)[-1], note, style=style)
    if len(topics) > SHOWN:
        table.add_row(f'and {len(topics) - SHOWN} more', '', '', '', '', '')
    return table


def _states(topic: str, rows: Sequence[tuple[str, Sequence[Quantity]]]) -> Table:
    heads = [f'{q.name} [{q.unit}]>' if q.unit else f'{q.name}>' for q in rows[0][1]] if rows else []
    table = _table(topic, '', *heads)
    for name, quantities in rows[:SHOWN]:
        table.add_row(name, *(told(q.value, q.deviation) for q in quantities))
    if len(rows) > SHOWN:
        table.add_row(f'and {len(rows) - SHOWN} more')
    return table


def _parameters(topic: str, quantities: Sequence[Quantity], sentence: str) -> Group:
    table = _table(topic, 'parameter', 'estimate ± std>', 'unit', '')
    for q in quantities[:SHOWN]:
        table.add_row(q.name, told(q.value, q.deviation), q.unit, q.note, style='yellow' if q.note else '')
    return Group(table, Text(sentence, style='dim'))


def _short(value: str) -> str:
    """A number with fewer digits; other text as it is."""
    try:
        return f'{float(value):.4g}'
    except ValueError:
        return value


def _statuses(statuses: Sequence[Status]) -> Table:
    table = _table('What the nodes say', 'node', 'level', 'message', 'numbers')
    for s in statuses[:SHOWN]:
        values = ', '.join(f'{k} {_short(v)}' for k, v in s.values.items() if v and len(v) <= 24 and v not in ('0', 'False'))
        table.add_row(s.name, Text(s.level, style=LEVELS.get(s.level, '')), s.message, Text(values, style='dim'))
    return table


def draw(snapshot: Snapshot) -> RenderableType:
    """Everything, one table below the other; what is empty is left out."""
    parts: list[RenderableType] = [Text(snapshot.title, style='dim')] if snapshot.title else []
    if snapshot.topics:
        parts.append(_topics(snapshot.topics))
    else:
        parts.append(
            Text(
                'Nobody publishes anything here yet. Is a system up, in this domain and on this machine? `multibody-estimation up furuta`',
                style='yellow',
            )
        )
    parts += [_states(topic, rows) for topic, rows in snapshot.states.items() if rows]
    parts += [_parameters(topic, p, snapshot.sentences.get(topic, '')) for topic, p in snapshot.parameters.items() if p]
    if snapshot.statuses:
        parts.append(_statuses(snapshot.statuses))
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text('')]
    return Group(*spaced[:-1])
