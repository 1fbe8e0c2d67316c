# SPDX-License-Identifier: Apache-2.0
"""JAX as this package uses it: float64, with a persistent compilation cache.

Every module that computes imports ``jax`` and ``jnp`` from here, so the two settings below are made in exactly one place and
before the first array exists.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp

__all__ = ['cache_folder', 'jax', 'jnp', 'static', 'value']


def cache_folder() -> Path:
    """Folder of the compiled programs: ``JAX_COMPILATION_CACHE_DIR``, or one below the user's cache folder."""
    chosen = os.environ.get('JAX_COMPILATION_CACHE_DIR')
    if chosen:
        return Path(chosen)
    base = os.environ.get('XDG_CACHE_HOME')
    return (Path(base) if base else Path.home() / '.cache') / 'multibody_estimation' / 'jax'


jax.config.update('jax_enable_x64', True)
jax.config.update('jax_compilation_cache_dir', str(cache_folder()))
# Small programs count too: a run compiles dozens of them, and reading one back takes a tenth of its compile time.
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)

T = TypeVar('T')


def static(**options: Any) -> Any:
    """Field of a `value` that is structure (names, shapes, flags), not a number: hashable, part of the compiled program."""
    return dataclasses.field(metadata={'static': True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def value(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass that is a JAX pytree; fields made with `static` are its structure."""
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    jax.tree_util.register_dataclass(
        cls,
        data_fields=[f.name for f in fields if not f.metadata.get('static')],
        meta_fields=[f.name for f in fields if f.metadata.get('static')],
    )
    return cls
