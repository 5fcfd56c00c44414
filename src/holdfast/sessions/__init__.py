"""The life cycle of sessions on any store: create, find, suspend, expire, delete, search and audit
sessions.

`Sessions` works without the harness, for programs that have their own agent. Every change is an
event of thread `main`, and the row is updated in the same append.
"""

from ..log.search import declare_text
from ..values.audit import Audited, Decided
from ..values.records import PersonErased, PersonRecord
from ..values.search import Found, SearchPage
from .affinity import AffinityResolver, Inbound, MostRecent
from .lifecycle import HOUR, Sessions
from .outbound import Delivery
from .sweep import Purged, Retention, Sweeper, Swept
from .transitions import Transition

__all__ = [
    "HOUR",
    "AffinityResolver",
    "Audited",
    "Decided",
    "Delivery",
    "Found",
    "Inbound",
    "MostRecent",
    "PersonErased",
    "PersonRecord",
    "Purged",
    "Retention",
    "SearchPage",
    "Sessions",
    "Sweeper",
    "Swept",
    "Transition",
    "declare_text",
]
