# SPDX-License-Identifier: Apache-2.0
"""The report of a force/torque calibration: forces on their spheres, torques on their discs, the matrix and how well it is known."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from multibody_estimation.calibration.enough import check_data
from multibody_estimation.calibration.model import AXES, GRAVITY, Dataset
from multibody_estimation.calibration.quality import Quality, compare_with_factory, quality
from multibody_estimation.calibration.result import Calibration
from multibody_estimation.reporting.figures import Figure, Series, lines, matrix, scene
from multibody_estimation.reporting.page import (
    Cell,
    Finding,
    Report,
    Section,
    Verdict,
    bullets,
    listing,
    number,
    paragraph,
    table,
)
from multibody_estimation.reporting.provenance import versions

__all__ = ['calibration_report']

PALETTE = ('blue', 'orange', 'green', 'purple', 'yellow', 'sky')


def calibration_report(
    calibration: Calibration,
    datasets: Sequence[Dataset],
    *,
    held_out: Quality | None = None,
    factory: np.ndarray | None = None,
    title: str = '',
) -> Report:
    """Make the report; ``.save(path)`` writes it.

    datasets: the samples it was made from. held_out: its quality on samples it has not seen (`calibration.held_out`). factory: the matrix
    the sensor came with, N and N m per count, (6, 6).
    """
    seen = quality(calibration, datasets, seen=True)
    sections = [
        _wrenches(calibration, datasets),
        _distances(calibration, datasets, factory),
        _accuracy(seen, held_out),
        _matrix(calibration, factory),
    ]
    sections += [_samples(calibration, datasets), _repeat(calibration)]
    mass, deviation = calibration.mass
    count = sum(len(d) for d in datasets)
    return Report(
        title or f'Calibration of {calibration.serial or "a force/torque sensor"}',
        f'{count} samples in {len(datasets)} datasets, {calibration.method}, {calibration.date[:16]}; body {mass:.4f} ± {deviation:.4f} kg',
        _verdict(calibration, datasets, seen, held_out, factory),
        tuple(sections),
    )


def _verdict(
    c: Calibration, datasets: Sequence[Dataset], seen: Quality, held_out: Quality | None, factory: np.ndarray | None
) -> Verdict:
    findings = [Finding('look', note) for note in c.notes]
    judged = held_out or seen
    force, torque = judged.overall
    share = force / max(float(judged.full_force.max()), 1e-12)
    told = f'Forces are off by {force:.3f} N and torques by {torque:.4f} N m (rms per axis) on samples the fit has {"not " if held_out else ""}seen, '
    told += f'{100 * share:.2g} % of the largest force.'
    findings.append(Finding('good' if share < 0.02 else 'look' if share < 0.1 else 'bad', told))
    if held_out is None:
        findings.append(Finding('look', 'No sample was held out: how it does on new ones is not shown.'))
    elif held_out.overall[0] > 1.5 * seen.overall[0] or held_out.overall[1] > 1.5 * seen.overall[1]:
        findings.append(
            Finding(
                'look', 'Samples that were held out are off by half as much again as those of the fit: take more orientations.'
            )
        )
    if np.isfinite(c.chi2):
        good = 0.5 < c.chi2 < 1.6
        findings.append(
            Finding(
                'good' if good else 'look',
                f'Mean squared residual {c.chi2:.2f} in units of the noise (1 where noise and model are right).',
            )
        )
    enough = check_data(datasets)
    findings += [Finding('good' if enough.enough else 'look', s) for s in enough.sentences]
    if factory is not None:
        findings.append(Finding('', str(compare_with_factory(c, datasets, factory))))
    findings.sort(key=lambda f: ('bad', 'look', 'good', '').index(f.level))
    levels = [f.level for f in findings]
    headline = (
        'Do not use this calibration.'
        if 'bad' in levels
        else 'Usable with care.'
        if 'look' in levels
        else 'This calibration can be used.'
    )
    return Verdict(headline, tuple(findings))


def _of(c: Calibration, d: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated wrenches (n, 6) of a dataset with its own offset, and ``[m, m c]`` of what hung on the sensor."""
    own = replace(c, offset=c.offsets.get(d.name, c.offset))
    return own.wrench(d.strain, d.temperature), c.body + d.load.inertia


def _circle(axis: np.ndarray, radius: float, count: int = 49) -> np.ndarray:
    """Circle perpendicular to an axis; (count, 3)."""
    V = np.linalg.svd(axis[None])[2]
    t = np.linspace(0, 2 * np.pi, count)[:, None]
    return radius * (np.cos(t) * V[1] + np.sin(t) * V[2])


def _wrenches(c: Calibration, datasets: Sequence[Dataset]) -> Section:
    panes = []
    for first in (0, 3):
        nodes: list[np.ndarray] = [np.zeros((1, 3))]
        drawn, dots = [], [{'nodes': [0], 'color': 'gray', 'size': 5}]
        for i, d in enumerate(datasets):
            w, inertia = _of(c, d)
            color, lever = PALETTE[i % len(PALETTE)], float(np.linalg.norm(inertia[1:]))
            if first == 0:
                rings = [_circle(axis, GRAVITY * inertia[0]) for axis in np.eye(3)]
            else:
                rings = (
                    [_circle(inertia[1:] / lever, GRAVITY * lever * k) for k in (1.0, 0.5)] if lever > 1e-3 * inertia[0] else []
                )
            for ring in rings:
                at = sum(len(n) for n in nodes)
                nodes.append(ring)
                drawn.append({'path': list(range(at, at + len(ring))), 'color': color, 'width': 1, 'faint': True})
            at = sum(len(n) for n in nodes)
            nodes.append(w[:, first : first + 3])
            dots.append({'nodes': list(range(at, at + len(w))), 'color': color, 'size': 6})
        unit, what = ('N', 'force') if first == 0 else ('N m', 'torque')
        panes.append({'title': f'{what} [{unit}]', 'nodes': np.concatenate(nodes), 'lines': drawn, 'dots': dots})
    figures = [
        scene(
            'Forces on their spheres',
            panes[:1],
            wide=False,
            caption='Rings: |f| = m g for each load. Drag or arrow keys turn it.',
        ),
        scene('Torques on their discs', panes[1:], wide=False, caption='Rings: the rim |m c| g of each disc, and half of it.'),
    ]
    colors = ', '.join(f'{d.name} ({PALETTE[i % len(PALETTE)]})' for i, d in enumerate(datasets))
    told = 'At rest a force lies on a sphere of radius m g and a torque on a disc of radius |m c| g, whatever the orientation. '
    return Section('Wrenches', (paragraph(f'{told}Loads: {colors}.'), *figures))


def _distances(c: Calibration, datasets: Sequence[Dataset], factory: np.ndarray | None) -> Section:
    sphere, disc, start = [], [], 0
    old: tuple[list, list, list] = ([], [], [])
    for i, d in enumerate(datasets):
        w, inertia = _of(c, d)
        at = start + np.arange(len(d))
        start += len(d)
        norm = inertia[0] * np.linalg.norm(d.acceleration - c.accelerometer_bias, axis=1)
        lever = float(np.linalg.norm(inertia[1:]))
        normal = inertia[1:] / lever if lever > 1e-3 * inertia[0] else np.full(3, np.nan)
        color = PALETTE[i % len(PALETTE)]
        if factory is not None:
            before = np.linalg.solve(c.matrix, w.T).T @ np.asarray(factory, dtype=float).T
            for kept, x in zip(old, (at, np.linalg.norm(before[:, :3], axis=1) - norm, 1e3 * before[:, 3:] @ normal)):
                kept.append(x)
        sphere.append(Series(d.name, at, np.linalg.norm(w[:, :3], axis=1) - norm, type='stems', color=color))
        disc.append(Series(d.name, at, 1e3 * w[:, 3:] @ normal, type='stems', color=color))
    if factory is not None:
        where, far, flat = (np.concatenate(x) for x in old)
        sphere.append(Series('factory matrix', where, far, type='points', color='gray'))
        disc.append(Series('factory matrix', where, flat, type='points', color='gray'))
    return Section('Distance from sphere and disc', (
        lines('Distance of each force from its sphere', sphere, x='sample', y='[N]'),
        lines('Distance of each torque from its disc', disc, x='sample', y='[mN m]'),
    ))  # fmt: skip


def _accuracy(seen: Quality, held_out: Quality | None) -> Section:
    rows = []
    for q, label in ((seen, 'of the fit'), (held_out, 'held out')):
        if q is None:
            continue
        for i, name in enumerate(q.names):
            rows.append([name, label, number(q.force[i], 3), number(q.torque[i], 3), number(q.sphere[i], 3), number(q.disc[i], 3),
                         number(q.full_force[i], 4), number(q.full_torque[i], 3)])  # fmt: skip
    head = ['load', 'samples', 'force [N]', 'torque [N m]', 'off sphere [N]', 'off disc [N m]', 'm g [N]', '|m c| g [N m]']
    return Section('Calibrated less expected wrench (rms)', (table(head, rows, words=(1,)),))


def _matrix(c: Calibration, factory: np.ndarray | None) -> Section:
    channels = [f'ch{k + 1}' for k in range(6)]
    rows = [
        [axis, *(Cell(number(x, 4), '', f'± {number(s, 2)}') for x, s in zip(row, dev))]
        for axis, row, dev in zip(AXES, 1e3 * c.matrix, 1e3 * c.standard_deviation)
    ]
    body: list[str | Figure] = [
        paragraph('N and N m per 1000 counts, with standard deviations.'),
        table(['axis', *channels], rows),
    ]
    size = np.linalg.norm(c.matrix, axis=1, keepdims=True)
    body.append(
        matrix(
            'Each row as shares of its length',
            c.matrix / size,
            AXES,
            channels,
            caption='A sensor without crosstalk would have one full cell in each row.',
        )
    )
    if factory is not None:
        # Torques count as forces at the lever that makes both rows equally long.
        lever = max(float(np.linalg.norm(c.matrix[3:]) / np.linalg.norm(c.matrix[:3])), 1e-12)
        scale = np.repeat([1.0, lever], 3)
        change = (c.secondary(factory) - np.eye(6)) / scale[:, None] * scale
        told = f'Matrix that turns factory wrenches into calibrated ones, less the identity; torques over a lever of {1e3 * lever:.0f} mm.'
        body.append(
            matrix(
                'What changes against the factory', change, AXES, AXES, high=max(0.02, float(np.abs(change).max())), caption=told
            )
        )
    return Section('Matrix', tuple(body))


def _samples(c: Calibration, datasets: Sequence[Dataset]) -> Section:
    enough = check_data(datasets)
    rows = []
    for d in datasets:
        offset = c.offsets.get(d.name)
        rows.append([d.name, number(d.load.mass), ', '.join(number(1e3 * x, 3) for x in d.load.center_of_mass), str(len(d)),
                     f'{100 * enough.coverage.get(d.name, float("nan")):.0f} %', ', '.join(f'{x:.0f}' for x in offset) if offset is not None else '–'])  # fmt: skip
    head = ['load', 'mass [kg]', 'centre [mm]', 'samples', 'even spread', 'offset [counts]']
    noise = ', '.join(number(s, 3) for s in c.strain_noise)
    told = [
        f'Noise of a sample: {noise} counts.',
        f'Accelerometer bias: {", ".join(number(x, 3) for x in c.accelerometer_bias)} m/s².',
    ]
    if np.isfinite(c.reference_temperature):
        told.append(
            f'Drift: {", ".join(number(x, 3) for x in c.temperature_coefficient)} counts per K from {c.reference_temperature:.1f} °C.'
        )
    return Section('Samples', (table(head, rows, words=(2, 5)), bullets(told)))


def _repeat(c: Calibration) -> Section:
    text = '\n'.join(f'{k}: {v}' for k, v in versions().items())
    return Section(
        'To repeat it',
        (paragraph(f'Method {c.method}, {c.date}.'), listing(text, 'Versions'), listing(str(c), 'The calibration as text')),
    )
