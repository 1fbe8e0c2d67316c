# SPDX-License-Identifier: Apache-2.0
"""Bodies that can exist: an identified moment of a planar mechanism may exceed the sum of two others that nobody has looked at."""

from collections.abc import Iterable

import numpy as np

from multibody_estimation import tree
from multibody_estimation.errors import EstimationError

__all__ = ['make_possible']

AXES = 'xyz'


def make_possible(model: tree.Model, estimated: Iterable[str]) -> tuple[tree.Model, tuple[str, ...]]:
    """The model with moments that were not estimated raised until every body can exist, and a sentence for each.

    Only moments on which the joint torques do not depend are touched; where that does not suffice, it is an error.
    """
    estimated, out, said = set(estimated), model, []
    for link in model.link_names:
        I = np.asarray(out.inertia)[out.link_index(link)]
        moments = np.linalg.eigvalsh(I)
        lack = moments[2] - moments[0] - moments[1]
        if lack <= 1e-9 * moments[2]:
            continue
        free = [i for i in range(3) if f'{link}.inertia.{AXES[i] * 2}' not in estimated]
        for i in free:
            # A little more than is lacking, against rounding in the file.
            raised = tree.set_leaf(out, f'{link}.inertia.{AXES[i] * 2}', float(I[i, i] + lack * (1 + 1e-6)))
            if _same(model, raised):
                out = raised
                said.append(f'{link}: its moment about {AXES[i]}, which no joint feels, was raised to {I[i, i] + lack:.4g} kg m^2, or no body could have the identified ones.')  # fmt: skip
                break
        else:
            raise EstimationError(
                f'{link}: the identified moments {", ".join(f"{m:.4g}" for m in moments)} kg m^2 belong to no body. '
                f'Estimate `{link}.inertial`, which is possible by construction, or give `{link}.mass` and its moments priors.'
            )
    return out, tuple(said)


def _same(one: tree.Model, other: tree.Model) -> bool:
    """Whether two models have the same joint torques, on a few motions."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        q, v, a = rng.standard_normal((3, one.nv))
        x, y = (np.asarray(tree.inverse_dynamics(m, q, v, a)) for m in (one, other))
        if not np.allclose(x, y, rtol=1e-12, atol=1e-13 * max(np.abs(x).max(), 1e-12)):
            return False
    return True
