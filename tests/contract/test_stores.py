"""The contract on every store, and the rows of the parity tables that it proves whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

import holdfast
from holdfast.testing import StoreContract
from tests import servers
from tests.servers import recycled

URLS = {
    "memory": "memory:",
    "sqlite": "sqlite:{place}/holdfast.db",
    "file": "file:{place}/holdfast",
}


@asynccontextmanager
async def url_of(kind: str, place: Path) -> AsyncGenerator[str, None]:
    if kind in servers.KINDS:
        async with recycled.empty(kind) as url:
            yield url
    else:
        yield URLS[kind].format(place=quote(str(place)))


@pytest.mark.parity("harness-kernel", 104)
@pytest.mark.parity("user-demand", 36)
class TestStores(StoreContract):
    ONE_CASE = (
        "pooled",
        "standalone",
    )  # the stores for PostgreSQL and MongoDB, connected otherwise

    @pytest.fixture(params=[*URLS, *servers.KINDS])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncGenerator[holdfast.Store, None]:
        async with url_of(request.param, tmp_path) as url, holdfast.connect(url) as store:
            yield store

    @pytest.mark.parity("user-demand", 41)
    async def test_order_comes_from_the_numbers_alone(self, store: holdfast.Store) -> None:
        await super().test_order_comes_from_the_numbers_alone(store)


# What of the contract proves a row of the table of what users ask for
PROVEN = {
    "test_of_two_racing_writers_exactly_one_wins": (6,),
    "test_an_append_from_a_stale_head_writes_nothing": (6,),
    "test_side_writers_need_no_lease": (9,),
    "test_a_release_that_missed_an_event_is_refused_and_keeps_the_lease": (9,),
    "test_a_held_lease_names_its_holder": (10,),
    "test_of_many_who_want_a_lease_one_gets_it": (10,),
    "test_a_lapsed_lease_writes_and_renews_until_somebody_takes_over": (10,),
    "test_a_restore_over_a_log_is_refused": (11,),
    "test_fifty_that_begin_one_log_begin_it_once": (11,),
    "test_a_nasty_payload_reads_back_equal": (39,),
    "test_a_nasty_value_reads_back_equal_from_the_row": (39,),
    "test_a_large_payload_reads_back_equal": (39,),
    "test_what_json_cannot_hold_is_refused": (39,),
    "test_data_that_is_not_one_json_text_is_refused": (39,),
    "test_what_is_above_the_limits_is_refused_whole": (39,),
    "test_a_row_shows": (45, 72),
    "test_a_row_shows_head_size_and_times": (45,),
    "test_find_gives_the_sessions_that_answer": (45,),
    "test_pages_give_every_row_once_also_those_of_one_moment": (45,),
    "test_what_completes_a_draft_removes_it": (54,),
    "test_the_furthest_snapshot_of_a_version_is_kept": (54,),
    "test_a_deleted_session_is_hidden_from_every_method": (52, 78),
    "test_a_lease_of_one_log_fences_no_other": (78,),
    "test_unknown_kinds_and_fields_survive_being_copied": (48,),
    "test_a_fork_shares_its_past_and_goes_its_own_way": (77,),
    "test_a_fork_outlives_its_parent_and_what_grows_there": (77,),
}
for name, rows in PROVEN.items():
    mark = pytest.mark.parity("user-demand", *rows)
    setattr(TestStores, name, mark(getattr(StoreContract, name)))
