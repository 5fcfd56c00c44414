"""Simulates a cluster of several processes inside one real process, with virtual time, and with
faults that are drawn from a seed.

`draw` returns the scenario of a seed, `simulate` runs a scenario and checks its outcome, and
`check_agent` runs your own agent in many scenarios.
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
