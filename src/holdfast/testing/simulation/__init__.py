"""Simulation of a whole cluster in one process: virtual time, several processes, faults by seed.

`draw` makes the scenario of a seed, `simulate` plays and judges it, and `check_agent` plays an
agent of your own in many of them.
"""

from .agent_check import check_agent
from .faults import InjectedFault
from .outcome import SimulationOutcome
from .runner import FailedSeed, SimulationReport, run, smallest
from .scenario import Scenario, Step, draw
from .shrink import shrink
from .simulation import Simulation, simulate
from .story import story
from .workload import record_effect, this_process

__all__ = [
    "FailedSeed",
    "InjectedFault",
    "Scenario",
    "Simulation",
    "SimulationOutcome",
    "SimulationReport",
    "Step",
    "check_agent",
    "draw",
    "record_effect",
    "run",
    "shrink",
    "simulate",
    "smallest",
    "story",
    "this_process",
]


def __dir__() -> list[str]:
    return sorted(__all__)
