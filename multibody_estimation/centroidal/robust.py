# SPDX-License-Identifier: Apache-2.0
"""Robust losses: how much a sample may pull that its noise does not explain."""

from dataclasses import dataclass

from scipy.stats import chi2

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['Loss']


@dataclass(frozen=True)
class Loss:
    """Loss on the squared Mahalanobis length s = r' R^-1 r of a block of d rows.

    All are concave in s, so weighting each block by ``weight(s)`` gives a quadratic that lies above the loss and touches it: a
    Gauss-Newton step on the weighted problem lowers the loss itself, and the weights are renewed at every iteration.
    """

    kind: str = 'none'
    """``none`` (s/2), ``huber`` (linear in the length past a threshold), ``student`` (logarithmic: outliers lose their pull)."""
    parameter: float | None = None
    """Huber: threshold for one row (1.345 where not given); student: degrees of freedom (4 where not given)."""

    def __post_init__(self) -> None:
        kinds = ('none', 'huber', 'student')
        if self.kind not in kinds:
            raise EstimationError(f"No loss is named '{self.kind}'.{did_you_mean(self.kind, kinds)}")
        if self.parameter is not None and not self.parameter > 0:
            raise EstimationError(f'The parameter of the {self.kind} loss is {self.parameter}; it must be above zero.')

    def _threshold(self, rows: int) -> float:
        """Squared length that as many clean samples of ``rows`` rows exceed as samples of one row exceed the parameter."""
        one = self.parameter or 1.345
        return float(chi2.ppf(chi2.cdf(one**2, 1), rows))

    def cost(self, s: jax.Array, rows: int) -> jax.Array:
        if self.kind == 'huber':
            t = self._threshold(rows)
            return jnp.where(s <= t, s / 2, jnp.sqrt(t * jnp.maximum(s, t)) - t / 2)
        if self.kind == 'student':
            freedom = self.parameter or 4.0
            return (freedom + rows) / 2 * jnp.log1p(s / freedom)
        return s / 2

    def weight(self, s: jax.Array, rows: int) -> jax.Array:
        """Return twice the derivative of the cost by s."""
        if self.kind == 'huber':
            t = self._threshold(rows)
            return jnp.sqrt(t / jnp.maximum(s, t))
        if self.kind == 'student':
            freedom = self.parameter or 4.0
            return (freedom + rows) / (freedom + s)
        return jnp.ones_like(s)
