# SPDX-License-Identifier: Apache-2.0
"""The verdict on an identification, in sentences: is it usable, and what should be looked at first."""

from collections.abc import Iterable, Sequence

import numpy as np

from multibody_estimation.identification import Fit
from multibody_estimation.reporting.fit_channels import Ahead
from multibody_estimation.reporting.page import Finding, Verdict, number
from multibody_estimation.reporting.residuals import Channel

__all__ = ['judge', 'off_truth', 'pairs_alike', 'sizes', 'weak']

ALIKE = 0.98
"""Correlation beyond which two parameters are hardly told apart."""


def _listed(names: Iterable[str], most: int = 6) -> str:
    names = list(names)
    shown = names[:most] + ([f'{len(names) - most} more'] if len(names) > most else [])
    return ' and '.join([', '.join(shown[:-1]), shown[-1]]) if len(shown) > 1 else ''.join(shown)


def weak(fit: Fit) -> list[int]:
    """Free parameters whose standard deviation is more than half of their size: a tilt of nothing, known well, is not weak."""
    sd, size = fit.std, sizes(fit)
    return [i for i in range(len(sd)) if fit.held[i] == 0 and np.isfinite(sd[i]) and sd[i] > 0.5 * size[i]]


def sizes(fit: Fit) -> np.ndarray:
    """Of each parameter the estimate's magnitude, or a typical change of it where that is more; (p,)."""
    typical = {p.name: p.step for p in (fit.problem.binding.parameters if fit.problem is not None else fit.robot.parameters)}
    return np.array([max(abs(v), typical.get(n, 0.0)) for n, v in zip(fit.names, fit.values)])


def pairs_alike(fit: Fit) -> list[tuple[int, int, float]]:
    """Pairs with a correlation near one of which one at least is told to no better than a tenth of its size."""
    C, sd = fit.correlation, fit.std
    vague = np.isfinite(sd) & (sd > 0.1 * sizes(fit))
    return [(i, j, float(C[i, j])) for i in range(len(C)) for j in range(i) if abs(C[i, j]) > ALIKE and (vague[i] or vague[j])]


def off_truth(fit: Fit) -> np.ndarray:
    """Estimate less truth in standard deviations, NaN where one of them is not known; (p,)."""
    sd = fit.std
    out = np.full(len(fit.values), np.nan)
    for i, name in enumerate(fit.names):
        if name in fit.truth and np.isfinite(sd[i]) and sd[i] > 0:
            out[i] = (fit.values[i] - fit.truth[name]) / sd[i]
    return out


def _fitted(channels: Sequence[Channel]) -> Iterable[Finding]:
    large = [c for c in channels if c.rms > 1.15]
    small = [c for c in channels if c.rms < 0.8]
    colored = [c for c in channels if not c.whiteness().white]
    if large:
        told = _listed(f'{c.name} ({c.rms:.2f} std)' for c in large)
        level = 'bad' if max(c.rms for c in large) > 3 else 'look'
        yield Finding(
            level,
            f'Residuals are larger than the stated noise for {told}: the model misses something, or the noise is larger than stated.',
        )
    if small:
        told = _listed(f'{c.name} ({c.rms:.2f} std)' for c in small)
        yield Finding(
            'look',
            f'Residuals are smaller than the stated noise for {told}: state a smaller noise, or the standard deviations are too wide.',
        )
    if colored:
        told = _listed(c.name for c in colored)
        yield Finding(
            'look',
            f'Residuals of {told} are not white: a part of the motion is not in the model, and the standard deviations may be too small.',
        )
    if channels and not (large or small or colored):
        low, high = min(c.rms for c in channels), max(c.rms for c in channels)
        size = ' to '.join(dict.fromkeys([f'{low:.2f}', f'{high:.2f}']))
        yield Finding(
            'good', f'The motion is explained down to the noise: residuals are {size} of its standard deviation and white.'
        )


def _told(fit: Fit) -> Iterable[Finding]:
    p = len(fit.names)
    for sentence in fit.blind:
        yield Finding('look', f'The data cannot tell: {sentence}')
    bound = [fit.titles[i] for i in range(p) if fit.held[i] in (-1, 1)]
    if bound:
        yield Finding('look', f'At a bound, so not estimated freely: {_listed(bound)}. Is the bound right?')
    thin = weak(fit)
    if thin:
        yield Finding('look', f'Hardly told (standard deviation above half of the size): {_listed(fit.titles[i] for i in thin)}.')
    for i, j, c in pairs_alike(fit)[:3]:
        yield Finding('look', f'{fit.titles[j]} and {fit.titles[i]} are hardly told apart (correlation {number(c, 3)}).')
    free = sum(1 for k in fit.held if k == 0)
    if free and not (fit.blind or bound or thin):
        share = [s / v for s, v, k in zip(fit.std, sizes(fit), fit.held) if k == 0 and v]
        yield Finding(
            'good',
            f'All {free} free parameters are told by the data (standard deviations {100 * min(share):.2g} % to {100 * max(share):.2g} % of their sizes).',
        )


def _ahead(ahead: Ahead) -> Finding:
    span = float(ahead.prediction.time[-1] - ahead.prediction.time[0])
    parts, worst = [], 0.0
    for joint, error in ahead.prediction.error.items():
        noise = ahead.noise.get(joint, float('nan'))
        parts.append(
            f'{joint} {1e3 * error:.3g} (noise {1e3 * noise:.3g})' if np.isfinite(noise) else f'{joint} {1e3 * error:.3g}'
        )
        worst = max(worst, error / noise if noise > 0 else 0.0)
    told = f'Simulated over {span:.2f} s {"it had not seen" if ahead.unseen else "of its own data"}: off by {_listed(parts)} mrad or mm rms.'
    if ahead.unseen:
        return Finding('good' if worst < 2 else 'look', told)
    return Finding('' if worst < 2 else 'look', told + ' That is no independent check: give a recording as held_out.')


def judge(fit: Fit, channels: Sequence[Channel], ahead: Ahead | None, defects: int = 0) -> Verdict:
    """Put the verdict together."""
    findings = [Finding('good' if fit.converged else 'bad', fit.sentence)]
    findings += _fitted(channels)
    findings += _told(fit)
    if ahead is not None:
        findings.append(_ahead(ahead))
    off = off_truth(fit)
    known = np.isfinite(off)
    if known.any():
        near, worst = int((np.abs(off[known]) <= 3).sum()), int(np.nanargmax(np.abs(off)))
        told = f'{near} of {int(known.sum())} estimates lie within 3 standard deviations of the known truth; farthest: {fit.titles[worst]}, {abs(off[worst]):.1f}.'
        findings.append(Finding('good' if near == known.sum() else 'look', told))
    if defects:
        findings.append(Finding('look', f'The recording has {defects} defect{"s" if defects > 1 else ""} (listed at the end).'))
    findings.sort(key=lambda f: ('bad', 'look', 'good', '').index(f.level))
    levels = [f.level for f in findings]
    count = levels.count('look')
    if 'bad' in levels:
        headline = 'Do not use this fit yet.'
    elif count:
        headline = f'Usable with care: {"one thing" if count == 1 else f"{count} things"} to look at.'
    else:
        headline = 'This fit can be used.'
    return Verdict(headline, tuple(findings))
