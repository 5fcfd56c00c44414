"""The links of a log: whatever is done to it by hand is found where it was done, and erasing is not
found at all."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from tests.links.tampering import (
    Log,
    Record,
    blanked,
    changed,
    cut,
    erase,
    kept_for,
    put_in,
    record_of,
    removed,
    swapped,
)

from holdfast import Damage, Key, NewEvent, Row
from holdfast.events import Event
from holdfast.log.catalog.encrypted_preview import LOST
from holdfast.stores import hash_chain, rules
from holdfast.stores.hash_chain import SALT, LinkWalk

NAMES = st.text(min_size=1, max_size=8)
MAYBE = st.none() | NAMES
PLAIN = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20)
VALUES = PLAIN | st.lists(PLAIN, max_size=2) | st.fixed_dictionaries({"text": PLAIN})
ENVELOPES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["note.made", "foreign.kind", "a", "log.damaged"]),
        "payload": VALUES,
        "v": st.integers(1, 3),
        "run": MAYBE,
        "actor": MAYBE,
        "cause": MAYBE,
    }
)
KEYS = st.builds(Key, NAMES, NAMES, NAMES)
TIMES = st.integers(0, 2**50)


def grown(log: Log, appends: list[list[dict[str, Any]]], at: int = 0) -> Log:
    """The log after appends."""
    for some in appends:
        new = [NewEvent.of(**one, id=f"e{log.head + n}") for n, one in enumerate(some, 1)]
        events = [e.numbered(log.head + n, at + n) for n, e in enumerate(new, 1)]
        kept, link = hash_chain.linked(log.row, events, hash_chain.seals(new))
        records = [record_of(event, one) for event, one in zip(events, kept, strict=True)]
        row = replace(log.row, head=log.head + len(events), link=link)
        log = replace(log, row=row, records=[*log.records, *records])
    return log


def begun(key: Key, after: int = 0, left: bytes = b"") -> Log:
    return Log(rules.new_row(key, 0, at=after, base=hash_chain.link_in(left)), [], after, left)


@st.composite
def logs(draw: st.DrawFn, least: int = 1) -> Log:
    """A log of a few appends, perhaps a fork's, some of it perhaps erased."""
    after = draw(st.just(0) | st.integers(1, 9))
    left = b"w" + os.urandom(SALT + 32) if after else b""
    some = st.lists(ENVELOPES, min_size=1, max_size=3)
    appends = draw(st.lists(some, min_size=1, max_size=3))
    log = grown(begun(draw(KEYS), after, left), appends, draw(TIMES))
    assume(len(log.records) >= least)
    return erase(log, draw(st.lists(places(log), max_size=2, unique=True)))


def places(log: Log) -> st.SearchStrategy[int]:
    return st.integers(log.after + 1, log.head)


def found(log: Log, *, lossy: bool = False) -> list[Damage]:
    walk = LinkWalk(log.row, log.after, log.left, lossy=lossy)
    damages = [walk.look(one.event, one.hash, one.kept) for one in log.records]
    return [*(damage for some in damages for damage in some), *walk.end()]


def first(log: Log, *, lossy: bool = False) -> tuple[str, int | None]:
    """What is found first; all of it names the log."""
    damages = found(log, lossy=lossy)
    assert damages
    assert {damage.key for damage in damages} == {log.row.key}
    return damages[0].problem, damages[0].seq


# A log as it was written


@given(logs())
def test_nothing_is_found_in_a_log_as_it_was_written(log: Log) -> None:
    assert found(log) == []


@given(logs(), st.data())
def test_erasing_any_events_is_not_found(log: Log, data: st.DataObject) -> None:
    blank = erase(log, data.draw(st.lists(places(log), unique=True)), reason="a demand")
    assert found(blank) == []
    assert blank.row.link == log.row.link


@given(logs(), st.data())
def test_a_log_goes_on_behind_what_was_erased(log: Log, data: st.DataObject) -> None:
    blank = erase(log, data.draw(st.lists(places(log), unique=True)))
    more = grown(blank, [[{"kind": "note.made", "payload": 1}]])
    assert found(more) == []
    assert first(changed(more, more.head, at=-1)) == ("broken", more.head)


@given(ENVELOPES)
def test_what_is_kept_of_an_erased_event_tells_nothing_of_it(envelope: dict[str, Any]) -> None:
    log = grown(begun(Key("t", "s", "main")), [[envelope]])
    (record,) = log.records
    assert record.kept is not None
    salt, link = record.kept[1 : 1 + SALT], record.kept[1 + SALT :]
    kept = erase(log, [1]).records[0].kept
    assert kept is not None
    mark = kept[1:33]
    assert kept == b"e" + sha256(salt + record.hash).digest() + link
    assert salt not in kept
    for guess in (b"", bytes(SALT), record.hash[:SALT], link[:SALT], mark[:SALT]):
        assert mark != sha256(guess + record.hash).digest()
        assert mark != sha256(guess + bytes(record.event.data)).digest()
    assert hash_chain.erased(kept, record.hash) == kept


def test_the_same_events_are_sealed_by_other_salts_each_time() -> None:
    events = [NewEvent.of("note.made", {"yes": True}, id=f"e{n}") for n in range(50)]
    salts = [seal.salt for seal in hash_chain.seals(events) + hash_chain.seals(events)]
    assert len(set(salts)) == 100
    assert {len(salt) for salt in salts} == {SALT}


# One event that was altered

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": NAMES,
    "kind": NAMES,
    "v": st.integers(1, 9),
    "run": MAYBE,
    "actor": MAYBE,
    "cause": MAYBE,
    "at": TIMES,
    "data": VALUES,
}


@pytest.mark.parametrize("field", FIELDS)
@given(logs(), st.data())
def test_an_altered_field_is_found_at_its_event(field: str, log: Log, data: st.DataObject) -> None:
    seq = data.draw(places(log))
    wrong = changed(log, seq, **{field: data.draw(FIELDS[field])})
    assume(wrong.at(seq).event != log.at(seq).event)
    assert [(one.problem, one.seq) for one in found(wrong)] == [("broken", seq)]


@given(logs(), st.data())
def test_another_number_is_found_at_its_event(log: Log, data: st.DataObject) -> None:
    seq = data.draw(places(log))
    old = log.at(seq)
    other = replace(old.event, seq=data.draw(st.integers(1, 2**53).filter(lambda n: n != seq)))
    records = [Record(other, old.hash, old.kept) if one is old else one for one in log.records]
    wrong = found(replace(log, records=records))
    assert [(one.problem, one.seq) for one in wrong] == [("broken", other.seq)]


@given(logs(), st.data())
def test_an_erased_event_with_new_data_is_found(log: Log, data: st.DataObject) -> None:
    seq = data.draw(places(log))
    wrong = changed(erase(log, [seq]), seq, data=data.draw(VALUES))
    assert first(wrong) == ("broken", seq)


@given(logs(), st.data())
def test_an_event_that_is_blank_and_was_not_erased_is_found(log: Log, data: st.DataObject) -> None:
    seq = data.draw(places(log))
    old = log.at(seq)
    assume(old.kept is not None and old.kept[:1] == b"w")
    for kept in (
        old.kept,
        b"e" + os.urandom(32) + hash_chain.link_in(old.kept),
        b"e" + sha256(old.hash).digest() + hash_chain.link_in(old.kept),
        hash_chain.link_in(old.kept),
    ):
        assert [(one.problem, one.seq) for one in found(blanked(log, seq, kept))] == [
            ("broken", seq)
        ]


@given(logs(least=2), st.data())
def test_an_event_that_is_blank_and_lost_its_link_is_found(log: Log, data: st.DataObject) -> None:
    seq = data.draw(places(log))
    problem, place = first(blanked(log, seq, None))
    if seq > log.after + 1:
        assert (problem, place) == ("unlinked", seq)
    else:  # as an older program writes it, but what follows begins before it
        assert (problem, place) == ("broken", seq + 1)


@given(logs(), st.data())
def test_links_that_were_taken_from_all_events_are_missed_by_the_row(
    log: Log, data: st.DataObject
) -> None:
    seq = data.draw(places(log))
    bare = [changed(log, seq, actor="mallory").at(n).event for n in range(log.after + 1, log.head)]
    last = log.at(log.head).event
    wrong = log.having([record_of(event, None) for event in [*bare, last]])
    assert first(wrong) == ("broken", log.head)


# Events that were removed, moved or put in


@given(logs(least=2), st.data())
def test_a_removed_event_is_found_where_it_was(log: Log, data: st.DataObject) -> None:
    seq = data.draw(places(log))
    assert first(removed(log, seq)) == ("broken", min(seq, log.head - 1))


@given(logs(least=2), st.data())
def test_two_events_that_changed_places_are_found_at_the_first(
    log: Log, data: st.DataObject
) -> None:
    one, other = sorted(data.draw(st.lists(places(log), min_size=2, max_size=2, unique=True)))
    assert first(swapped(log, one, other)) == ("broken", one)


@given(logs(), st.data())
def test_an_event_put_in_without_a_link_is_found(log: Log, data: st.DataObject) -> None:
    seq = data.draw(st.integers(log.after + 1, log.head + 1))
    wrong = put_in(log, seq, None, data=data.draw(VALUES))
    if seq > log.after + 1:
        assert first(wrong) == ("unlinked", seq)
    else:
        assert first(wrong) == ("broken", seq + 1)


@given(logs(), st.data())
def test_a_blank_event_put_in_without_a_link_is_found(log: Log, data: st.DataObject) -> None:
    seq = data.draw(st.integers(log.after + 2, log.head + 1))
    assert first(put_in(log, seq, None, data={"erased": "no"})) == ("unlinked", seq)


@given(logs(), st.data())
def test_an_event_put_in_with_any_link_is_found_there(log: Log, data: st.DataObject) -> None:
    seq = data.draw(st.integers(log.after + 1, log.head + 1))
    others = [record.kept for record in log.records]
    kept = data.draw(st.sampled_from([*others, b"w" + os.urandom(SALT + 32), b"x" * 33, b""]))
    assert first(put_in(log, seq, kept)) == ("broken", seq)


@given(logs(), st.data())
def test_an_event_put_in_whose_link_follows_is_found_by_the_next(
    log: Log, data: st.DataObject
) -> None:
    seq = data.draw(st.integers(log.after + 1, log.head + 1))
    wrong = put_in(log, seq, kept_for(log, seq))
    assert first(wrong) == ("broken", min(seq + 1, wrong.head))


@given(logs(), st.data())
def test_an_end_that_was_cut_off_is_found_at_the_end(log: Log, data: st.DataObject) -> None:
    upto = data.draw(st.integers(log.after, log.head - 1))
    assert first(cut(log, upto)) == ("broken", upto)


@given(logs(), logs())
def test_the_events_of_another_log_are_found_at_once(log: Log, other: Log) -> None:
    wrong = replace(other, row=replace(log.row, link=None), after=log.after, left=log.left)
    assert first(wrong.having(other.records)) == ("broken", log.after + 1)


@given(logs())
def test_the_same_events_under_another_name_are_found_at_once(log: Log) -> None:
    row = log.row
    for name in ("tenant", "session", "thread", "log"):
        wrong = replace(log, row=replace(row, **{name: getattr(row, name) + "x"}))
        assert [(one.problem, one.seq) for one in found(wrong)] == [("broken", log.after + 1)]


@given(logs())
def test_a_fork_that_left_elsewhere_is_found_at_once(log: Log) -> None:
    assume(log.after)
    wrong = replace(log, left=b"w" + os.urandom(SALT + 32))
    assert [(one.problem, one.seq) for one in found(wrong)] == [("broken", log.after + 1)]


# What an older program wrote


def written_before(key: Key, count: int, *, blank: bool) -> Log:
    """A log of a program that knew of no links; its last event may be erased."""
    log = grown(begun(key), [[{"kind": "note.made", "payload": n}] for n in range(count)])
    log = replace(log, records=[replace(record, kept=None) for record in log.records])
    log = replace(log, row=replace(log.row, link=None))
    return erase(log, [count]) if blank else log


@given(st.integers(1, 4), st.lists(ENVELOPES, min_size=1, max_size=3), st.booleans(), st.data())
def test_links_begin_behind_what_has_none(
    count: int, more: list[dict[str, Any]], blank: bool, data: st.DataObject
) -> None:
    log = grown(written_before(Key("t", "s", "main"), count, blank=blank), [more])
    assert found(log) == []
    seq = data.draw(st.integers(count + 1, log.head))
    assert first(changed(log, seq, at=-1)) == ("broken", seq)
    assert first(removed(log, data.draw(st.integers(1, count)))) == ("broken", count)
    assert first(put_in(log, 1, None)) == ("broken", count + 2)


@given(logs(), st.lists(ENVELOPES, min_size=1, max_size=3), st.data())
def test_an_event_of_an_older_program_is_told_and_the_rest_goes_on(
    log: Log, more: list[dict[str, Any]], data: st.DataObject
) -> None:
    wrote = replace(put_in(log, log.head + 1, None), row=replace(log.row, link=None))
    bare = replace(wrote, row=replace(wrote.row, head=wrote.head))
    after = grown(bare, [more])
    told = [("unlinked", bare.head)]
    assert [(one.problem, one.seq) for one in found(bare)] == told
    assert [(one.problem, one.seq) for one in found(after)] == told
    seq = data.draw(st.integers(bare.head + 1, after.head))
    wrong = found(changed(after, seq, actor="mallory \0"))
    assert [(one.problem, one.seq) for one in wrong] == [*told, ("broken", seq)]


@given(logs(least=3), st.data())
def test_an_erasure_by_an_older_program_that_drops_the_link_is_told_alone(
    log: Log, data: st.DataObject
) -> None:
    seq = data.draw(st.integers(log.after + 2, log.head - 1))
    assert [(one.problem, one.seq) for one in found(blanked(log, seq, None))] == [("unlinked", seq)]


@given(st.integers(1, 3), st.lists(ENVELOPES, min_size=2, max_size=3), st.data())
def test_what_a_deleted_log_left_is_bound_without_its_name(
    count: int, more: list[dict[str, Any]], data: st.DataObject
) -> None:
    left = grown(written_before(Key("t", "s", "gone"), count, blank=False), [more])
    for log in (left, grown(begun(Key("t", "s", "gone")), [more])):
        fork = rules.new_row(Key("t", "s", "fork"), 0, at=log.head)
        assert found_in_part(fork, log) == []
        seq = data.draw(st.integers(log.head - len(more) + 2, log.head))
        wrong = found_in_part(fork, changed(log, seq, at=-1))
        assert [(one.problem, one.key, one.seq) for one in wrong] == [("broken", fork.key, seq)]


def found_in_part(row: Row, log: Log) -> list[Damage]:
    walk = LinkWalk(row, log.after, None, deleted=log.row.log)
    damages = [walk.look(one.event, one.hash, one.kept) for one in log.records]
    return [damage for some in damages for damage in some]


# What was damaged


def lost(log: Log, seq: int) -> Log:
    """What a store of files leaves of an event whose line cannot be read, after a repair."""
    new = NewEvent.of(LOST, {"erased": "damaged"}, id=f"damaged:{seq}")
    return log.having_at(seq, record_of(new.numbered(seq, 0), None))


@given(logs(least=3), st.data())
def test_what_follows_a_damaged_event_is_still_bound(log: Log, data: st.DataObject) -> None:
    seq = data.draw(st.integers(log.after + 1, log.head - 2))
    old = log.at(seq)
    mended = blanked(
        log, seq, hash_chain.erased(old.kept, old.hash, damaged=True), reason="damaged"
    )
    assert found(mended) == []
    assert first(changed(mended, seq, data="not blank")) == ("broken", seq)
    assert first(changed(mended, seq + 1, at=-1)) == ("broken", seq + 1)
    gone = lost(log, seq)
    assert found(gone, lossy=True) == []
    assert first(changed(gone, seq + 2, at=-1), lossy=True) == ("broken", seq + 2)
    assert seq == log.after + 1 or first(gone) == ("unlinked", seq), "where nothing is lost so"


@given(logs(least=2))
def test_an_event_that_is_lost_at_the_end_is_missed_by_the_row(log: Log) -> None:
    gone = lost(log, log.head)
    assert first(gone, lossy=True) == ("broken", gone.head)
    assert found(replace(gone, row=replace(gone.row, link=None)), lossy=True) == []


@given(logs(least=2), st.data())
def test_an_unreadable_event_does_not_hide_the_next_but_one(log: Log, data: st.DataObject) -> None:
    seq = data.draw(places(log))
    walk = LinkWalk(log.row, log.after, log.left)
    damages = []
    for record in log.records:
        if record.event.seq == seq:
            walk.skip(record.kept)
        else:
            damages += walk.look(record.event, record.hash, record.kept)
    assert damages + walk.end() == []


ODD = st.binary(max_size=80) | st.builds(
    lambda tag, rest: tag + rest, st.sampled_from([b"w", b"e", b"x"]), st.binary(max_size=80)
)


@given(logs(), ODD, st.data())
def test_odd_bytes_in_place_of_a_link_are_found_and_nothing_fails(
    log: Log, kept: bytes, data: st.DataObject
) -> None:
    seq = data.draw(places(log))
    old = log.at(seq)
    assume(kept != old.kept and not (kept[:1] == b"x" and old.kept and old.kept[:1] == b"e"))
    assert first(log.having_at(seq, Record(old.event, old.hash, kept))) == ("broken", seq)
    for damaged in (False, True):
        mended = blanked(log, seq, hash_chain.erased(kept, old.hash, damaged=damaged))
        assert all(one.problem == "broken" for one in found(mended))
    hash_chain.ending(kept)


@given(logs(), st.text(max_size=70) | st.binary(max_size=40).map(bytes.hex))
def test_an_odd_link_of_a_row_is_found_and_nothing_fails(log: Log, link: str) -> None:
    wrong = replace(log, row=replace(log.row, link=link))
    assert [(one.problem, one.seq) for one in found(wrong)] == [("broken", log.head)]
    more = grown(wrong, [[{"kind": "note.made", "payload": 1}]])
    assert all(one.seq == more.head for one in found(more))


@given(ODD, ODD)
def test_a_fork_of_a_damaged_event_fails_nowhere(left: bytes, kept: bytes) -> None:
    log = grown(begun(Key("t", "s", "f"), 3, left), [[{"kind": "note.made", "payload": 1}]])
    assert found(log) == []
    event = Event(kind="k", data=Raw(b"\xff{"), id="e", seq=4, at=0)
    assert found(replace(log, records=[record_of(event, kept)]))


def test_no_link_says_what_a_row_says() -> None:
    row = Row(tenant="t", session="s", thread="main", log="l", head=3)
    assert hash_chain.linked(row, [], []) == ([], None)
    assert hash_chain.ending(None) is None
    assert b"link" not in msgspec.json.encode(row)
