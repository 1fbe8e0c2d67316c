# SPDX-License-Identifier: Apache-2.0
"""Are the residuals noise? Their size in standard deviations, their distribution, and whether one tells the next (whiteness)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from multibody_estimation.reporting.figures import Figure, Series, lines

__all__ = ['Channel', 'Whiteness', 'autocorrelation', 'channel_figures', 'whiteness']

LAGS = 50


@dataclass(frozen=True)
class Whiteness:
    """Autocorrelation of residuals, with a test of all lags together."""

    lags: np.ndarray
    correlation: np.ndarray
    band: float
    """95 % of the correlations of white noise lie within plus and minus this."""
    outside: int
    probability: float
    """Of a Ljung-Box statistic at least this large if the residuals were white."""
    effect: float
    """Largest correlation in magnitude."""

    @property
    def white(self) -> bool:
        """Whether they may pass for white: not told apart from noise, or so nearly noise that no estimate would change."""
        return self.probability > 1e-3 or self.effect < 0.1

    def __str__(self) -> str:
        expected = 0.05 * len(self.lags)
        told = f'{self.outside} of {len(self.lags)} lags outside the 95 % band ({expected:.1f} expected), largest correlation {self.effect:.2f}'
        return f'white ({told})' if self.white else f'not white ({told}): something in the motion is not in the model'


def autocorrelation(r: np.ndarray, lags: int) -> np.ndarray:
    """Autocorrelation (lags,) from lag 1 of a series (n,); pairs with a missing sample (NaN) are left out."""
    x = r - np.nanmean(r)
    seen = np.isfinite(x)
    x = np.where(seen, x, 0.0)
    size = 1 << int(2 * len(x) - 1).bit_length()
    f, g = np.fft.rfft(x, size), np.fft.rfft(seen.astype(float), size)
    product, pairs = (np.fft.irfft(np.abs(s) ** 2, size)[: lags + 1] for s in (f, g))
    mean = product / np.maximum(np.round(pairs), 1)
    return mean[1:] / mean[0] if mean[0] > 0 else np.zeros(lags)


def whiteness(r: np.ndarray, lags: int = LAGS) -> Whiteness:
    """Judge residuals (n,), evenly sampled, NaN where missing."""
    n = int(np.isfinite(r).sum())
    lags = max(1, min(lags, n // 4))
    c = autocorrelation(r, lags)
    k = np.arange(1, lags + 1)
    statistic = n * (n + 2) * np.sum(c**2 / np.maximum(n - k, 1))
    band = 1.96 / np.sqrt(max(n, 1))
    return Whiteness(k, c, float(band), int((np.abs(c) > band).sum()), float(chi2.sf(statistic, lags)), float(np.abs(c).max()))


@dataclass(frozen=True)
class Channel:
    """One column of one sensor over the stages of a fit."""

    name: str
    unit: str
    time: np.ndarray
    """Seconds, (n,)."""
    measured: np.ndarray
    """NaN where nothing was measured, (n,)."""
    estimate: np.ndarray
    """What the fitted model says the sensor should read, (n,)."""
    residual: np.ndarray
    """Estimate less measured, in standard deviations of the noise; NaN where nothing was measured, (n,)."""
    noise: float
    """Standard deviation of a sample in the unit above."""
    deviation: np.ndarray | None = None
    """Standard deviation of the estimate, (n,)."""
    starts: tuple[int, ...] = ()
    """First sample of each recording after the first one."""

    @property
    def rms(self) -> float:
        """Of the residuals, in standard deviations."""
        return float(np.sqrt(np.nanmean(self.residual**2)))

    def whiteness(self) -> Whiteness:
        """Of the residuals; the last ones of a recording are not compared with the first ones of the next."""
        gap = np.full(LAGS, np.nan)
        parts = [_own_rate(part) for part in np.split(self.residual, self.starts)]
        return whiteness(np.concatenate([x for part in parts for x in (part, gap)][:-1]))


def _own_rate(r: np.ndarray) -> np.ndarray:
    """Residuals at the rate of their sensor, where that is slower than the stages."""
    seen = np.flatnonzero(np.isfinite(r))
    return r[seen[0] :: max(int(np.median(np.diff(seen))), 1)] if len(seen) > 1 else r


def _curve(channel: Channel) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Time, estimate and its deviation where there was a reading, broken where none came for long."""
    seen = np.flatnonzero(np.isfinite(channel.estimate))
    t = channel.time[seen]
    breaks = np.flatnonzero(np.diff(t) > 5 * np.median(np.diff(t))) + 1 if len(t) > 2 else np.zeros(0, int)

    def broken(x: np.ndarray) -> np.ndarray:
        return np.insert(x[seen], breaks, np.nan)

    deviation = None if channel.deviation is None else broken(channel.deviation)
    return np.insert(t, breaks, t[breaks]) if len(breaks) else t, broken(channel.estimate), deviation


def channel_figures(channel: Channel, seams: Sequence[float] = ()) -> tuple[list[Figure], list[Figure]]:
    """Trajectory, and the three pictures of the residuals."""
    c = channel
    marks = [{'type': 'v', 'at': float(s)} for s in seams]
    t, estimate, deviation = _curve(c)
    curves = [Series('measured', c.time, c.measured, type='points', color='gray')]
    if deviation is not None and np.isfinite(deviation).any():
        d = 2 * deviation
        curves.append(Series('estimate ± 2 std', t, estimate - d, estimate + d, 'band', 'blue'))
    curves.append(Series('estimate', t, estimate, color='blue'))
    motion = lines(c.name, curves, y=f'{c.name} [{c.unit}]' if c.unit else c.name, link='time', marks=marks, wide=True)
    r = c.residual[np.isfinite(c.residual)]
    over = lines(
        'Over time', [Series('estimate less measured', c.time, c.residual, type='points', color='blue')],
        y='residual [std]', link='time', marks=[*marks, {'type': 'h', 'at': 2}, {'type': 'h', 'at': -2}],
        caption=f'{c.rms:.2f} std rms; {100 * np.mean(np.abs(r) > 2):.1f} % beyond 2 std (4.6 % expected of noise).',
    )  # fmt: skip
    reach = max(4.0, float(np.quantile(np.abs(r), 0.999)))
    edges = np.linspace(-reach, reach, 41)
    share = np.histogram(np.clip(r, -reach, reach), edges, density=True)[0]
    fine = np.linspace(-reach, reach, 161)
    normal = np.exp(-(fine**2) / 2) / np.sqrt(2 * np.pi)
    histogram = lines(
        'Distribution',
        [Series('residuals', (edges[:-1] + edges[1:]) / 2, share, type='bars', color='blue'), Series('noise as stated', fine, normal, color='orange')],
        x='residual [std]', y='density',
    )  # fmt: skip
    w = c.whiteness()
    white = lines(
        'Autocorrelation', [Series('correlation', w.lags, w.correlation, type='stems', color='blue')],
        x='lag [samples]', y='correlation', marks=[{'type': 'h', 'at': w.band, 'keep': True}, {'type': 'h', 'at': -w.band, 'keep': True}],
        caption=f'{str(w)[0].upper()}{str(w)[1:]}.',
    )  # fmt: skip
    return [motion], [over, histogram, white]
