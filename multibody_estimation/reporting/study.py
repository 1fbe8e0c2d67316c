# SPDX-License-Identifier: Apache-2.0
"""The report of a study: how much each parameter moves with the weight, the step, the recording and the start; what failed and why."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation.reporting.figures import COLORS, Figure, Series, lines
from multibody_estimation.reporting.page import Cell, Finding, Report, Section, Verdict, listing, number, paragraph, table
from multibody_estimation.reporting.provenance import versions

__all__ = ['study_report']

AXES = {'weight': 'weight [rad/s²]', 'step': 'step [s]', 'compliance': 'compliance [m/N]', 'form': 'form', 'correction': 'correction',
        'recording': 'recording', 'start': 'start'}  # fmt: skip
SINGLE = len(COLORS) - 1
"""Curves that are drawn one by one; more become a median with a band."""
ROWS = 400
"""Runs that are listed; all are in the Parquet file."""

Row = Mapping[str, Any]


def study_report(rows: Sequence[Row], *, title: str = 'Study') -> Report:
    """Make the report of finished runs, each a row of plain data as `studies.run.do_run` returns it; ``.save(path)`` writes it."""
    good = [r for r in rows if r['status'] == 'ok']
    names = list(dict.fromkeys(n for r in good for n in r['parameters']))
    varied = [a for a in AXES if len({_place(r, a) for r in rows}) > 1]
    sections = []
    if good:
        sections.append(_spread(good, names, varied))
        for axis in varied:
            figures = [_figure(good, name, axis, varied) for name in names]
            sections.append(Section(f'Against the {axis}', tuple(figures)))
    sections += [_runs(rows, names, varied)]
    text = '\n'.join(f'{k}: {v}' for k, v in versions().items())
    sections.append(Section('To repeat it', (listing(text, 'Versions'),)))
    recordings = len({r['recording'] for r in rows})
    return Report(title, f'{len(rows)} runs over {recordings} recording{"s" if recordings > 1 else ""}', _verdict(rows, good, names, varied),
                  tuple(sections))  # fmt: skip


def _place(row: Row, axis: str) -> Any:
    """Where a run stands on an axis; what was asked for, else what was used."""
    if axis in ('recording', 'start'):
        return row[axis]
    return row['settings'].get(axis, row.get(axis) if row['status'] != 'failed' and axis not in ('weight', 'step') else None)


def _words(value: Any) -> str:
    if isinstance(value, float):
        return number(value, 3)
    return Path(value).name if isinstance(value, str) else str(value)


def _sorted(values: set[Any]) -> list[Any]:
    return sorted(values, key=lambda v: (v is not None, v if isinstance(v, (int, float)) else 0, str(v)))


def _moves(rows: Sequence[Row], name: str, axis: str, varied: Sequence[str]) -> tuple[float, float]:
    """Largest half range of a parameter along an axis, all else equal: in its unit, and in standard deviations."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        if name in row['parameters']:
            groups.setdefault(tuple(_place(row, a) for a in varied if a != axis), []).append(row)
    size, in_std = 0.0, 0.0
    for group in groups.values():
        values = np.array([r['parameters'][name]['value'] for r in group])
        deviations = np.array([r['parameters'][name]['std'] for r in group])
        usual = deviations[np.isfinite(deviations) & (deviations > 0)]
        half = float(np.ptp(values)) / 2
        size = max(size, half)
        in_std = max(in_std, half / float(np.median(usual))) if len(usual) else in_std
    return size, in_std


def _spread(good: Sequence[Row], names: Sequence[str], varied: Sequence[str]) -> Section:
    out = []
    for name in names:
        found = [r['parameters'][name] for r in good if name in r['parameters']]
        values = np.array([p['value'] for p in found])
        deviations = np.array([p['std'] for p in found])
        row: list[str | Cell] = [found[0]['title'], number(float(np.median(values))), f'± {number(float(np.median(deviations)), 2)}', found[0]['unit'] or '–']  # fmt: skip
        for axis in varied:
            _, in_std = _moves(good, name, axis, varied)
            row.append(Cell(f'{number(in_std, 2)} std', 'look' if in_std > 2 else ''))
        truth = [r['truth'][name] for r in good if name in r.get('truth', {})]
        row.append(number(truth[0]) if truth else '–')
        out.append(row)
    head = ['parameter', 'median', 'median standard deviation', 'unit', *(f'moves with {a}' for a in varied), 'truth']
    told = 'Moves: half the range along one axis with all else equal, the worst case, in standard deviations. Above 2 it matters.'
    return Section('Sensitivity', (paragraph(told), table(head, out, words=(3,))))


def _figure(good: Sequence[Row], name: str, axis: str, varied: Sequence[str]) -> Figure:
    rows = [r for r in good if name in r['parameters']]
    places = _sorted({_place(r, axis) for r in rows})
    groups: dict[tuple, dict[Any, Any]] = {}
    for r in rows:
        groups.setdefault(tuple(_place(r, a) for a in varied if a != axis), {})[_place(r, axis)] = r['parameters'][name]
    x = np.arange(len(places), dtype=float)
    values = np.array([[g[p]['value'] if p in g else np.nan for p in places] for g in groups.values()])
    deviations = np.array([[g[p]['std'] if p in g else np.nan for p in places] for g in groups.values()])
    series = []
    colors = [c for c in COLORS if c != 'gray']
    if len(groups) <= SINGLE:
        for k, key in enumerate(groups):
            label = ', '.join(_words(v) for v in key if v not in (None, '')) or 'estimate'
            color = colors[k % len(colors)]
            if np.isfinite(deviations[k]).any():
                series.append(
                    Series(
                        f'{label} band',
                        x,
                        values[k] - 2 * deviations[k],
                        values[k] + 2 * deviations[k],
                        'band',
                        color,
                        group=label,
                    )
                )
            series += [
                Series(label, x, values[k], color=color, group=label),
                Series(label, x, values[k], type='points', color=color, group=label),
            ]
        caption = 'Bands: two standard deviations.'
    else:
        low, middle, high = (np.nanquantile(values, q, axis=0) for q in (0.0, 0.5, 1.0))
        series = [Series('all runs', x, low, high, 'band', 'blue', group='range'), Series('median', x, middle, color='blue')]
        caption = f'Median and full range of {len(groups)} runs at each place.'
    truth = [r['truth'][name] for r in rows if name in r.get('truth', {})]
    if truth:
        series.append(Series('truth', x, np.full(len(x), truth[0]), color='gray', dash=True))
    first = rows[0]['parameters'][name]
    return lines(first['title'].capitalize(), series, x=AXES[axis], y=f'[{first["unit"]}]' if first['unit'] else '', names=[_words(p) for p in places],
                 caption=caption)  # fmt: skip


def _runs(rows: Sequence[Row], names: Sequence[str], varied: Sequence[str]) -> Section:
    # What went wrong stands first, so that a cut list never hides it.
    order = sorted(range(len(rows)), key=lambda i: ('failed', 'not converged', 'ok').index(rows[i]['status']))
    out, marked = [], []
    for k, i in enumerate(order[:ROWS]):
        r = rows[i]
        if r['status'] != 'ok':
            marked.append(k)
        level = {'ok': 'good', 'failed': 'bad'}.get(r['status'], 'look')
        out.append([Path(r['recording']).name, *(_words(_place(r, a)) for a in varied if a != 'recording'), Cell(r['status'], level, r['why']),
                    number(r.get('cost'), 4), str(r.get('iterations', '–')), number(r.get('seconds'), 3)])  # fmt: skip
    own = [a for a in varied if a != 'recording']
    head = ['recording', *own, 'ended', 'cost', 'iterations', 'seconds']
    words = (1 + len(own), *(1 + own.index(a) for a in ('start', 'form') if a in own))
    told = [paragraph(f'The first {ROWS} of {len(rows)}; all are in the Parquet file.')] if len(rows) > ROWS else []
    return Section('Runs', (*told, table(head, out, marked=marked, words=words)))


def _verdict(rows: Sequence[Row], good: Sequence[Row], names: Sequence[str], varied: Sequence[str]) -> Verdict:
    findings = []
    bad = [r for r in rows if r['status'] == 'failed']
    loose = [r for r in rows if r['status'] == 'not converged']
    if bad:
        findings.append(
            Finding('bad', f'{len(bad)} of {len(rows)} runs failed, the first: {Path(bad[0]["recording"]).name}: {bad[0]["why"]}')
        )
    if loose:
        findings.append(Finding('look', f'{len(loose)} of {len(rows)} runs did not converge.'))
    if not bad and not loose:
        findings.append(Finding('good', f'All {len(rows)} runs converged.'))
    for axis in varied if good else ():
        moves = {n: _moves(good, n, axis, varied)[1] for n in names}
        worst = max(moves, key=lambda n: moves[n])
        title = next(r['parameters'][worst]['title'] for r in good if worst in r['parameters'])
        level = 'look' if moves[worst] > 2 else 'good'
        findings.append(Finding(level, f'With the {axis}, {title} moves most: by {number(moves[worst], 2)} standard deviations.'))
    levels = {f.level for f in findings}
    headline = (
        'No run gave a result.' if not good
        else 'Some runs failed; the others stand.' if 'bad' in levels
        else 'The estimates hang on the settings: see which.' if 'look' in levels
        else 'The estimates hold over everything that was tried.'
    )  # fmt: skip
    return Verdict(headline, tuple(findings))
