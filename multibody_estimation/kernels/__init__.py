# SPDX-License-Identifier: Apache-2.0
"""Small compiled kernels, called from JAX through XLA's foreign function interface.

All ``*.cc`` files of this folder become one library, built by pip and by CMake. Every kernel has a twin in plain JAX that gives
the same numbers: it is the kernel's oracle in the tests, and serves where there was no compiler. A kernel's module reads

    if available('axpy'):
        return jax.ffi.ffi_call('multibody_axpy', ...)(...)
    return twin(...)
"""

import ctypes
import functools
import logging
import os
from pathlib import Path

import multibody_estimation
from multibody_estimation._jax import jax

__all__ = ['available', 'library_path']

log = logging.getLogger(__name__)


@functools.cache
def library_path() -> Path | None:
    """Path of the compiled library, or None. The source tree and the installed package are both looked through."""
    for root in multibody_estimation.__path__:
        for path in sorted(Path(root, 'kernels').glob('_kernels*.so')):
            return path
    return None


@functools.cache
def _library() -> ctypes.CDLL | None:
    if os.environ.get('MULTIBODY_ESTIMATION_KERNELS', '1') == '0':
        log.info('Compiled kernels are switched off by MULTIBODY_ESTIMATION_KERNELS=0: the pure-JAX twins serve.')
        return None
    path = library_path()
    if path is None:
        log.warning(
            'Compiled kernels were not built: the slower pure-JAX twins serve. Install a C++ compiler, then `make build`.'
        )
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        log.warning(
            'Compiled kernels could not be loaded (%s): the slower pure-JAX twins serve. Rebuild with `make build`.',
            error,
        )
        return None


@functools.cache
def available(name: str) -> bool:
    """Register the kernel ``name`` with XLA as ``multibody_<name>`` at its first use; False where the twin must serve."""
    library = _library()
    if library is None:
        return False
    handler = getattr(library, f'multibody_{name}', None)
    if handler is None:
        log.warning(
            'The compiled kernels are older than the package: %s is missing, its twin serves. Rebuild: `make build`.',
            name,
        )
        return False
    jax.ffi.register_ffi_target(f'multibody_{name}', jax.ffi.pycapsule(handler), platform='cpu')
    return True
