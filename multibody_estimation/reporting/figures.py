# SPDX-License-Identifier: Apache-2.0
"""Figures as values: series with their numbers, drawn in the browser by ``assets/plots.js`` and ``assets/scenes.js``.

Numbers travel as little-endian float32 in base64: half the size of written-out decimals, and NaN breaks a line.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ['COLORS', 'MOST', 'Figure', 'Series', 'encode', 'lines', 'matrix', 'scene', 'thin', 'vector']

MOST = 3000
"""Samples of one series that are kept; a screen has fewer columns."""

COLORS = {'blue': 0, 'orange': 1, 'green': 2, 'purple': 3, 'yellow': 4, 'sky': 5, 'gray': 6}


def encode(values: Any) -> str:
    """Array as base64 of little-endian float32; infinite becomes NaN."""
    x = np.asarray(values, dtype=float)
    return base64.b64encode(np.where(np.isfinite(x), x, np.nan).astype('<f4').tobytes()).decode()


def thin(x: np.ndarray, *ys: np.ndarray, most: int = MOST) -> tuple[np.ndarray, ...]:
    """Keep at most about ``most`` samples: of each stretch the lowest and the highest of the first ``ys``, so that no peak is lost."""
    x, ys = np.asarray(x, dtype=float), tuple(np.asarray(y, dtype=float) for y in ys)
    n = len(x)
    if n <= most:
        return x, *ys
    # Rows of equal length, the last one filled up with its own end.
    width = -(-n // max(most // 2, 1))
    place = np.minimum(np.arange(-(-n // width) * width), n - 1).reshape(-1, width)
    lead = ys[0][place]
    gap = ~np.isfinite(lead)
    kept = [place[:, 0] * 0, place[:, 0] * 0 + n - 1]
    for k in (np.where(gap, np.inf, lead).argmin(axis=1), np.where(gap, -np.inf, lead).argmax(axis=1), gap.argmax(axis=1)):
        kept.append(np.take_along_axis(place, k[:, None], axis=1)[:, 0])
    kept[-1] = kept[-1][gap.any(axis=1)]
    at = np.unique(np.concatenate(kept))
    return x[at], *(y[at] for y in ys)


@dataclass(frozen=True)
class Series:
    """One line, band, set of points, bars or stems of a figure."""

    name: str
    x: Any
    y: Any
    """Lower edge, for a band."""
    upper: Any = None
    """Upper edge of a band."""
    type: str = 'line'
    """``line``, ``points``, ``band``, ``bars`` or ``stems``."""
    color: str = 'blue'
    dash: bool = False
    group: str = ''
    """Series of one group are one entry of the legend."""

    def spec(self) -> dict[str, Any]:
        """What the browser gets."""
        given = (self.y,) if self.upper is None else (self.y, self.upper)
        x, *ys = thin(self.x, *given)
        out = {'name': self.name, 'type': self.type, 'color': COLORS[self.color], 'x': encode(x), 'y': encode(ys[0])}
        if self.upper is not None:
            out['y2'] = encode(ys[1])
        if self.dash:
            out['dash'] = True
        if self.group:
            out['group'] = self.group
        return out


@dataclass(frozen=True)
class Figure:
    """A drawing with title, what a reader who cannot see it is told, and its specification."""

    title: str
    spec: dict
    caption: str = ''
    wide: bool = field(default=False)
    """Takes the whole width of the page."""


def lines(
    title: str,
    series: Iterable[Series],
    *,
    x: str = 'time [s]',
    y: str = '',
    caption: str = '',
    link: str = '',
    log: bool = False,
    marks: Sequence[dict] = (),
    shades: Sequence[dict] = (),
    names: Sequence[str] = (),
    wide: bool = False,
    whole: bool = False,
) -> Figure:
    """Curves over a common axis.

    link: figures with the same word share zoom and cursor. marks: ``{'type': 'h' or 'v', 'at': number, 'keep': in view}``. names: of the
    places 0, 1, ... on the x axis, instead of numbers. whole: bands are seen whole, however wide.
    """
    spec: dict[str, Any] = {'kind': 'lines', 'x': {'label': x}, 'y': {'label': y}, 'series': [s.spec() for s in series]}
    if names:
        spec['x']['names'] = list(names)
    if whole:
        spec['y']['whole'] = True
    if log:
        spec['y']['log'] = True
    if link:
        spec['link'] = link
    if marks:
        spec['marks'] = list(marks)
    if shades:
        spec['shades'] = list(shades)
    return Figure(title, spec, caption, wide)


def matrix(
    title: str,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    short: Sequence[str] = (),
    high: float = 1.0,
    caption: str = '',
) -> Figure:
    """Heat map of a matrix, blue below zero, orange above; full colour at ``high``. short: names of the rows where room is scarce."""
    spec = {
        'kind': 'matrix',
        'rows': list(rows),
        'columns': list(columns),
        'short': list(short or rows),
        'values': encode(values),
        'high': float(high),
    }
    return Figure(title, spec, caption, True)


def scene(
    title: str, panes: Sequence[dict], *, time: np.ndarray | None = None, caption: str = '', wide: bool = True, **more: Any
) -> Figure:
    """Wireframes in three dimensions, side by side.

    A pane is ``{'title', 'nodes': (frames, nodes, 3) or (nodes, 3), 'lines': [{'path': [node, ...], 'color', 'width', 'faint'}],
    'dots': [{'nodes': [...], 'color', 'size'}]}``. time (frames,) in s makes it play.
    """

    def of(pane: dict) -> dict:
        nodes = np.asarray(pane['nodes'], dtype=float)
        parts = {
            k: [{**item, 'color': COLORS[item['color']]} for item in pane.get(k, ())]
            for k in ('lines', 'dots')
        }  # fmt: skip
        return {'title': pane['title'], 'nodes': encode(nodes), 'still': nodes.ndim == 2, **parts}

    spec = {'kind': 'scene', 'panes': [of(p) for p in panes], **{k: v for k, v in more.items() if v is not None}}
    if time is not None:
        spec['time'] = encode(time)
    return Figure(title, spec, caption, wide)


def vector(
    title: str,
    time: np.ndarray,
    values: np.ndarray,
    deviation: np.ndarray | None,
    unit: str,
    *,
    axes: Sequence[str] = 'xyz',
    truth: np.ndarray | None = None,
    link: str = 'time',
    caption: str = '',
) -> Figure:
    """Components (n, k) over time with two standard deviations, and the truth (n, k) dashed where it is known."""
    colors = ('blue', 'orange', 'green', 'purple', 'yellow', 'sky')
    series = []
    for i, axis in enumerate(axes):
        color, banded = colors[i % len(colors)], deviation is not None and bool(np.isfinite(deviation[:, i]).any())
        group = f'{axis} ± 2 std' if banded else axis
        if deviation is not None and banded:
            d = 2 * deviation[:, i]
            series.append(Series(f'{axis} band', time, values[:, i] - d, values[:, i] + d, 'band', color, group=group))
        series.append(Series(axis, time, values[:, i], color=color, group=group))
    for i, axis in enumerate(axes):
        if truth is not None:
            series.append(Series(f'{axis} true', time, truth[:, i], color='gray', dash=True, group='truth'))
    return lines(title, series, y=f'[{unit}]' if unit else '', link=link, caption=caption)
