# SPDX-License-Identifier: Apache-2.0
"""The report of a centroidal run: every part of the state with its band, how well the sensors agree, the way of the centre of mass."""

import numpy as np

from multibody_estimation.centroidal.ddp import CONVERGED
from multibody_estimation.centroidal.result import UNITS, CentroidalEstimate
from multibody_estimation.reporting.figures import Figure, scene, vector
from multibody_estimation.reporting.page import Cell, Finding, Report, Section, Verdict, listing, number, paragraph, table
from multibody_estimation.reporting.provenance import recordings, versions
from multibody_estimation.window import Window

__all__ = ['centroidal_report']


def _words(part: str) -> str:
    return part.replace('_', ' ')


def centroidal_report(
    estimate: CentroidalEstimate, window: Window | None = None, *, truth: np.ndarray | None = None, title: str = ''
) -> Report:
    """Make the report; ``.save(path)`` writes it.

    window: the recording, for its fingerprint and contact points. truth: true states (n, nx) where they are known.
    """
    e = estimate
    if truth is not None and np.shape(truth) != e.states.shape:
        from multibody_estimation.errors import EstimationError

        raise EstimationError(f'The truth has shape {np.shape(truth)}; the estimate has {e.states.shape}.')
    sections = [_table(e, truth), _motion(e, truth), _way(e, window), _sensors(e)]
    body = [
        *(recordings([window]) if window is not None else []),
        listing('\n'.join(f'{k}: {v}' for k, v in versions().items()), 'Versions'),
    ]
    sections.append(Section('To repeat it', tuple(body)))
    return Report(
        title or 'Centroidal motion',
        f'{e.time[-1] - e.time[0]:.2f} s, {len(e.time)} samples, {e.mass:g} kg, {e.iterations} iterations',
        _verdict(e, truth),
        tuple(sections),
    )


def _judged(size: float) -> tuple[str, str]:
    if 0.5 < size < 1.3:
        return 'good', 'as its noise says'
    return ('look', 'noise given too large') if size <= 0.5 else ('look', 'worse than its noise says')


def _off(e: CentroidalEstimate, truth: np.ndarray) -> np.ndarray:
    """Estimate less truth in standard deviations; (n, nx)."""
    deviation = np.sqrt(np.diagonal(e.covariance, axis1=1, axis2=2))
    return (e.states - truth) / np.where(deviation > 0, deviation, np.nan)


def _verdict(e: CentroidalEstimate, truth: np.ndarray | None) -> Verdict:
    findings = [Finding('good' if e.status == CONVERGED else 'bad', e.sentence)]
    for block, size in e.misfit.items():
        level, words = _judged(size)
        findings.append(Finding(level, f'{_words(block)}: residuals {size:.2f} of what is expected of them, {words}.'))
    if truth is not None:
        size = float(np.sqrt(np.nanmean(_off(e, truth) ** 2)))
        findings.append(
            Finding(
                'good' if size < 1.3 else 'look', f'Off the known truth by {size:.2f} standard deviations (rms; 1 is honest).'
            )
        )
    findings.sort(key=lambda f: ('bad', 'look', 'good', '').index(f.level))
    levels = [f.level for f in findings]
    headline = (
        'Do not use this estimate.'
        if 'bad' in levels
        else 'Usable with care.'
        if 'look' in levels
        else 'This estimate can be used.'
    )
    return Verdict(headline, tuple(findings))


def _table(e: CentroidalEstimate, truth: np.ndarray | None) -> Section:
    rows = []
    for part, where in e.layout.slices.items():
        row: list[str | Cell] = [
            _words(part),
            f'{number(float(e[part].min()))} … {number(float(e[part].max()))}',
            f'± {number(float(np.median(e.deviation(part))), 2)}',
            UNITS[part],
        ]
        if truth is not None:
            error = e[part] - truth[:, where]
            row += [
                number(float(np.sqrt(np.mean(error**2))), 3),
                number(float(np.sqrt(np.nanmean(_off(e, truth)[:, where] ** 2))), 3),
            ]
        rows.append(row)
    head = ['part', 'range', 'median standard deviation', 'unit'] + (['off by, rms', 'in std'] if truth is not None else [])
    return Section('State', (table(head, rows, words=(3,), plain=(2, 3)),))


def _motion(e: CentroidalEstimate, truth: np.ndarray | None) -> Section:
    figures = []
    for part, where in e.layout.slices.items():
        axes = 'xyz' if e[part].shape[1] == 3 else [_words(part)]
        known = truth[:, where] if truth is not None else None
        figures.append(vector(_words(part).capitalize(), e.time, e[part], e.deviation(part), UNITS[part], axes=axes, truth=known))
    return Section('Motion', tuple(figures))


def _way(e: CentroidalEstimate, window: Window | None) -> Section:
    way = e['center_of_mass'][:: max(1, len(e.time) // 600)]
    nodes, dots = (
        [way, [[*way[0]], [*way[-1]]]],
        [{'nodes': [len(way)], 'color': 'green', 'size': 9}, {'nodes': [len(way) + 1], 'color': 'orange', 'size': 9}],
    )
    if window is not None and 'contact_anchor' in window:
        points = np.unique(window['contact_anchor'].values[:, :3], axis=0)[:200]
        at = len(way) + 2
        nodes.append(points)
        dots.append({'nodes': list(range(at, at + len(points))), 'color': 'gray', 'size': 7})
    all_nodes = np.concatenate([np.asarray(n, dtype=float) for n in nodes])
    pane = {
        'title': 'centre of mass',
        'nodes': all_nodes,
        'lines': [{'path': list(range(len(way))), 'color': 'blue', 'width': 2}],
        'dots': dots,
    }
    figure: Figure = scene('Way of the centre of mass', [pane], ground=float(all_nodes[:, 2].min()), aspect=0.5,
                           caption='Green: first sample, orange: last, gray: points of contact. Drag or arrow keys turn it.')  # fmt: skip
    return Section('In space', (figure,))


def _sensors(e: CentroidalEstimate) -> Section:
    rows = [
        [_words(block), number(size, 3), Cell(_judged(size)[1], 'look' if _judged(size)[0] == 'look' else '')]
        for block, size in e.misfit.items()
    ]
    told = 'Residuals over what is expected of them after the fit: about 1 where noise and model are right.'
    return Section('Do the sensors agree?', (paragraph(told), table(['sensor', 'size', 'verdict'], rows, words=(2,))))
