# SPDX-License-Identifier: Apache-2.0
"""a x + y: the smallest kernel, to show that compiled kernels work on this machine."""

import numpy as np

from multibody_estimation._jax import jax
from multibody_estimation.kernels import available

__all__ = ['axpy', 'axpy_twin']


def axpy_twin(a: float, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return a x + y in plain JAX."""
    return a * x + y


def axpy(a: float, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return a x + y for float64 arrays of one shape, by the compiled kernel where it is there."""
    if not available('axpy'):
        return axpy_twin(a, x, y)
    call = jax.ffi.ffi_call('multibody_axpy', jax.ShapeDtypeStruct(x.shape, x.dtype))
    return call(x, y, a=np.float64(a))
