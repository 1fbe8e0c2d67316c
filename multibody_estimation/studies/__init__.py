# SPDX-License-Identifier: Apache-2.0
"""Studies: many identifications over recordings, method parameters and starts, on several processes, resumable."""

from multibody_estimation.studies.plan import Run, Study, read_study
from multibody_estimation.studies.study import Outcome, run_study

__all__ = ['Outcome', 'Run', 'Study', 'read_study', 'run_study']
