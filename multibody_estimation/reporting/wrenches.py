# SPDX-License-Identifier: Apache-2.0
"""The report of an estimate of wrenches: external wrenches and joint torques with bands, residuals, evidence while noise was learned."""

from typing import Any

import numpy as np

from multibody_estimation.reporting.figures import Figure, Series, lines, vector
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
from multibody_estimation.reporting.provenance import recordings, versions
from multibody_estimation.window import Window
from multibody_estimation.wrench.estimate import WrenchEstimate
from multibody_estimation.wrench.learn import Learned
from multibody_estimation.wrench.observability import Observability, observe
from multibody_estimation.wrench.posterior import Posterior

__all__ = ['wrench_report']

SHOWN = 12
"""Most links and joints that are drawn."""


def wrench_report(
    estimate: WrenchEstimate | Posterior,
    time: np.ndarray | None = None,
    *,
    learned: Learned | None = None,
    observability: Observability | None = None,
    truth: dict[str, np.ndarray] | None = None,
    window: Window | None = None,
    title: str = '',
) -> Report:
    """Make the report; ``.save(path)`` writes it.

    estimate: what `estimate_wrenches` found, or a posterior of N samples with the covariances of the blocks to be shown; then with
    time: of the samples in s (N,), and observability: judged at a generic posture where it is not given. learned: how the covariances of
    the sensors were learned. truth: external wrench (N, 6) by link. window: the recording, for its fingerprint.
    """
    notes: tuple[str, ...] = ()
    if isinstance(estimate, WrenchEstimate):
        posterior, time, observability, notes = (
            estimate.posterior,
            estimate.time,
            observability or estimate.observability,
            estimate.notes,
        )
        left = ', '.join(f'{name} ({count} of {len(estimate.time)})' for name, count in estimate.outliers.items() if count)
        notes += (f'Samples left out as outliers: {left}.',) if left else ()
    else:
        posterior = estimate
    t = np.arange(len(posterior), dtype=float) if time is None else np.asarray(time, dtype=float)
    axis = 'sample' if time is None else 'time [s]'
    seen = observability or observe(posterior.program)
    residuals = _sizes(posterior)
    sections = [
        _external(posterior, t, axis, truth or {}),
        _torques(posterior, t, axis),
        _residuals(posterior, residuals),
        _unseen(seen),
    ]
    if learned is not None:
        sections.append(_learned(learned))
    body = [
        *(recordings([window]) if window is not None else []),
        listing('\n'.join(f'{k}: {v}' for k, v in versions().items()), 'Versions'),
    ]
    sections.append(Section('To repeat it', tuple(body)))
    return Report(
        title or f'Wrenches on {posterior.program.model.name}',
        f'{len(posterior)} samples, {len(posterior.program.terms)} sensors, {len(posterior.program.joint_names)} joints',
        _verdict(residuals, seen, learned, _off(posterior, truth or {}), notes),
        tuple(s for s in sections if s.body),
    )


def _sizes(posterior: Posterior) -> dict[str, tuple[float, int]]:
    """Residual of each sensor in standard deviations of its noise (rms), and the samples that it gave."""
    r, out = posterior.residuals, {}
    for term in posterior.program.terms:
        rows = r[:, term.row : term.row + term.sensor.size]
        there = np.isfinite(rows).all(axis=1)
        L = np.linalg.cholesky(np.linalg.inv(term.sensor.covariance()))
        white = rows[there] @ L
        out[term.sensor.name] = (float(np.sqrt(np.mean(white**2))) if there.any() else float('nan'), int(there.sum()))
    return out


def _off(p: Posterior, truth: dict[str, np.ndarray]) -> dict[str, float]:
    """Estimate less truth in standard deviations (rms) of each link whose wrench is known."""
    out = {}
    for link, known in truth.items():
        s = p.deviation('external_wrench', link)
        out[link] = float(np.sqrt(np.nanmean(((p.wrench(link) - known) / np.where(s > 0, s, np.nan)) ** 2)))
    return out


def _verdict(
    residuals: dict[str, tuple[float, int]],
    seen: Observability,
    learned: Learned | None,
    off: dict[str, float],
    notes: tuple[str, ...] = (),
) -> Verdict:
    findings = [Finding('look', note) for note in notes] + [
        Finding(
            'good' if size < 1.3 else 'look', f'{link}: off the known truth by {size:.2f} standard deviations (rms; 1 is honest).'
        )
        for link, size in off.items()
    ]
    large = [f'{name} ({size:.2f})' for name, (size, _) in residuals.items() if size > 1.3]
    silent = [name for name, (_, count) in residuals.items() if not count]
    if large:
        findings.append(
            Finding(
                'look',
                f'Residuals are larger than the stated noise for {", ".join(large[:6])}{" and more" if len(large) > 6 else ""}.',
            )
        )
    else:
        findings.append(Finding('good', 'No sensor is off by more than its stated noise.'))
    if silent:
        findings.append(Finding('look', f'These sensors gave nothing: {", ".join(silent[:8])}.'))
    if seen.complete:
        findings.append(Finding('good', str(seen)))
    else:
        findings.append(
            Finding(
                'look',
                f'Sensors and equations determine {seen.rank} of {seen.variables} variables; priors alone decide the rest (listed below).',
            )
        )
    if learned is not None:
        steps = len(learned.evidence) - 1
        how = (
            f'The noise was learned in {steps} steps; the log evidence rose by {learned.evidence[-1] - learned.evidence[0]:.4g}.'
        )
        findings.append(
            Finding('good' if learned.converged else 'look', how if learned.converged else how + ' It has not converged.')
        )
        findings += [
            Finding('look', f'{name}: at its floor; the recording cannot tell its noise from the signal.')
            for name in learned.floored
        ]
    findings.sort(key=lambda f: ('bad', 'look', 'good', '').index(f.level))
    headline = 'Usable with care.' if any(f.level == 'look' for f in findings) else 'This estimate can be used.'
    return Verdict(headline, tuple(findings))


def _external(p: Posterior, t: np.ndarray, axis: str, truth: dict[str, np.ndarray]) -> Section:
    links = [of for quantity, of in p.blocks if quantity == 'external_wrench']
    body: list[str | Figure] = (
        [paragraph("Force, and moment about the link's origin, both in its frame, from the world on the link.")] if links else []
    )
    for link in links[:SHOWN]:
        w, s, known = p.wrench(link), p.deviation('external_wrench', link), truth.get(link)
        for part, what, unit in ((slice(0, 3), 'force', 'N'), (slice(3, 6), 'moment', 'N m')):
            figure = vector(
                f'{link}: {what}', t, w[:, part], s[:, part], unit, truth=known[:, part] if known is not None else None
            )
            figure.spec['x']['label'] = axis
            body.append(figure)
    return Section('External wrenches', tuple(body))


def _torques(p: Posterior, t: np.ndarray, axis: str) -> Section:
    wanted = [of for quantity, of in p.blocks if quantity == 'joint_torque']
    joints = sorted(wanted, key=lambda j: -float(np.ptp(p.joint_torques[:, p.program.joint_names.index(j)])))[:SHOWN]
    body: list[str | Figure] = []
    if len(wanted) > SHOWN:
        body.append(paragraph(f'The {SHOWN} joints of {len(wanted)} whose torque varies most.'))
    for joint in joints:
        x = p.joint_torques[:, [p.program.joint_names.index(joint)]]
        figure = vector(joint, t, x, p.deviation('joint_torque', joint), 'N m or N', axes=['torque'])
        figure.spec['x']['label'] = axis
        body.append(figure)
    return Section('Joint torques', tuple(body))


def _residuals(p: Posterior, sizes: dict[str, tuple[float, int]]) -> Section:
    rows: list[list[Any]] = []
    for name, (size, count) in sorted(sizes.items(), key=lambda item: -np.nan_to_num(item[1][0], nan=np.inf)):
        rows.append([name, Cell(number(size, 3), 'look' if size > 1.3 else ''), f'{count} of {len(p)}'])
    told = (
        'Residuals in standard deviations of the stated noise. The estimate follows part of the noise, so less than 1 is usual.'
    )
    return Section('Residuals of the sensors', (paragraph(told), table(['sensor', 'rms [std]', 'samples'], rows)))


def _unseen(seen: Observability) -> Section:
    return Section('What the sensors cannot tell', (bullets(seen.sentences) if seen.sentences else paragraph(str(seen)),))


def _learned(learned: Learned) -> Section:
    evidence = np.asarray(learned.evidence)
    rows = [
        [name, ', '.join(number(x, 3) for x in np.atleast_1d(d)), Cell('at its floor', 'look') if name in learned.floored else '']
        for name, d in learned.deviations.items()
    ]
    best = evidence.max()
    gap = np.maximum(best - evidence, 1e-12 * max(abs(best), 1.0))
    return Section('Noise learned from the data', (
        lines('Log evidence', [Series('log evidence', np.arange(len(evidence)), evidence)], x='step', y='log evidence'),
        lines('Still to gain', [Series('best less log evidence', np.arange(len(evidence) - 1), gap[:-1])], x='step', y='log evidence', log=True),
        table(['sensor or equation', 'standard deviations', ''], rows, words=(1, 2), plain=(1, 2)),
    ))  # fmt: skip
