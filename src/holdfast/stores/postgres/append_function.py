"""The database function that an append calls: lock the log, compare, write. One call, one commit.

The caller has decided the append based on its copy of the log, and passes the version of that copy
(`p_log`, `p_version`). The version counts the changes of the row and of the lease. If it is current
and none of the ids is known, everything is written (`status` 0), and with `p_token` also the new
state of the lease. Otherwise nothing is written, and the caller decides again: the result is the
current log with the numbers of the known ids (`status` 1), or that the log does not exist (`status`
2). So all stores share the decisions in `stores/rules.py`.

A function of a released version never changes, because programs of that version call it.
"""

# Finds each id with one seek. Only the index of ids has this order, and the function's settings
# exclude a sort, so the plan is the same with and without statistics, and is made once.
_SEEK = """unnest(p_ids) AS i (id) CROSS JOIN LATERAL (
                    SELECT e.id, e.seq FROM hf.events AS e
                    WHERE e.log = {log}.id AND e.id >= i.id ORDER BY e.id LIMIT 1
                ) AS e WHERE e.id = i.id"""
_CLOCK = "    clock := floor(extract(epoch FROM clock_timestamp()) * 1000);\n"

_APPEND = """
CREATE FUNCTION hf.{name}(
    p_tenant text, p_session text, p_thread text,
    p_log bigint, p_version bigint, p_new text,
    p_ids text[], p_first bigint, p_at bigint,
    p_kinds text[], p_vs integer[], p_runs text[], p_actors text[], p_causes text[],
    p_hashes bytea[], p_data bytea[],{parameter}
    p_user text, p_workspace text, p_agent text, p_phase text, p_run text,
    p_created bigint, p_active bigint, p_stale_at bigint, p_wake bigint, p_doc bytea,
    p_terms bytea[],
    p_open text[], p_whats text[], p_assignees text[], p_ats bigint[], p_seqs bigint[],
    p_items bytea[],
    p_dropped text[],{lease_parameters}
    OUT status integer, OUT clock bigint, OUT id bigint, OUT version bigint,
    OUT base bigint, OUT shared bigint,
    OUT token bigint, OUT owner text, OUT since bigint, OUT until bigint,{lease_results}
    OUT doc bytea,
    OUT known_ids text[], OUT known_seqs bigint[]
) LANGUAGE plpgsql{settings} AS $function$
#variable_conflict use_column
DECLARE
    head record;
BEGIN
{clock_first}    SELECT * INTO head FROM hf.logs AS l
        WHERE l.tenant = p_tenant AND l.session = p_session AND l.thread = p_thread
        FOR UPDATE;
    IF NOT FOUND AND p_new IS NOT NULL THEN
        INSERT INTO hf.logs AS l (
            log, state, version, tenant, session, thread, shared, {lease_columns},
            "user", workspace, agent, phase, run, created, active, stale_at, wake, doc
        ) VALUES (
            p_new, 0, 1, p_tenant, p_session, p_thread, 0, {lease_values},
            p_user, p_workspace, p_agent, p_phase, p_run, p_created, p_active, p_stale_at,
            p_wake, p_doc
        ) ON CONFLICT (tenant, session, thread) DO NOTHING RETURNING l.id INTO id;
        IF id IS NOT NULL THEN
            version := 1;
        ELSE
            SELECT * INTO head FROM hf.logs AS l
                WHERE l.tenant = p_tenant AND l.session = p_session AND l.thread = p_thread
                FOR UPDATE;
        END IF;
    END IF;
{clock_last}    IF id IS NULL THEN
        IF head.id IS NULL THEN
            status := 2;
            RETURN;
        END IF;
        IF head.base IS NULL THEN
            SELECT array_agg(e.id), array_agg(e.seq) INTO known_ids, known_seqs
                FROM {own};
        ELSE
            WITH RECURSIVE part AS (
                SELECT head.id AS id, 9223372036854775807 AS upto,
                    head.base AS base, head.shared AS shared
                UNION ALL
                SELECT l.id, part.shared, l.base, l.shared
                    FROM part JOIN hf.logs AS l ON l.id = part.base
            ) SELECT array_agg(e.id), array_agg(e.seq) INTO known_ids, known_seqs
                FROM {shared} AND e.seq <= part.upto;
        END IF;
        IF head.id IS DISTINCT FROM p_log OR head.version IS DISTINCT FROM p_version
            OR known_ids IS NOT NULL
        THEN
            status := 1;
            id := head.id; version := head.version; base := head.base; shared := head.shared;
            token := head.token; owner := head.owner; since := head.since; until := head.until;
            {lease_current}doc := head.doc;
            RETURN;
        END IF;
        id := head.id;
        version := head.version + 1;
        UPDATE hf.logs AS l SET
            version = head.version + 1, "user" = p_user, workspace = p_workspace,
            agent = p_agent, phase = p_phase, run = p_run, active = p_active,
            stale_at = p_stale_at, wake = p_wake, doc = p_doc{lease_written}
            WHERE l.id = head.id;
    END IF;
    INSERT INTO hf.events (log, seq, id, kind, v, run, actor, cause, at, hash, data{column})
        SELECT {name}.id, p_first + e.place - 1, e.id, e.kind, e.v, e.run, e.actor, e.cause,
            p_at, e.hash, e.data{value}
        FROM unnest(p_ids, p_kinds, p_vs, p_runs, p_actors, p_causes, p_hashes, p_data{argument})
            WITH ORDINALITY AS e (id, kind, v, run, actor, cause, hash, data{column}, place);
    IF p_terms IS NOT NULL THEN
        DELETE FROM hf.terms AS t WHERE t.log = {name}.id;
        INSERT INTO hf.terms (tenant, term, active, log)
            SELECT p_tenant, t.term, p_active, {name}.id FROM unnest(p_terms) AS t (term);
    END IF;
    IF p_open IS NOT NULL THEN
        DELETE FROM hf.pending AS p WHERE p.log = {name}.id;
        INSERT INTO hf.pending (log, id, tenant, session, what, assignee, at, seq, item)
            SELECT {name}.id, i.id, p_tenant, p_session, i.what, i.assignee, i.at, i.seq, i.item
            FROM unnest(p_open, p_whats, p_assignees, p_ats, p_seqs, p_items)
                AS i (id, what, assignee, at, seq, item);
    END IF;
    IF p_dropped IS NOT NULL THEN
        DELETE FROM hf.drafts AS d WHERE d.log = {name}.id AND d.message = ANY (p_dropped);
    END IF;
    status := 0;
END
$function$;
"""

_FIRST = {
    "settings": "",
    "parameter": "",
    "column": "",
    "value": "",
    "argument": "",
    "lease_parameters": "",
    "lease_results": "",
    "lease_columns": "token, since, until",
    "lease_values": "0, 0, 0",
    "lease_current": "",
    "lease_written": "",
    "clock_first": _CLOCK,
    "clock_last": "",
    "own": "hf.events AS e WHERE e.log = head.id AND e.id = ANY (p_ids)",
    "shared": """part JOIN hf.events AS e
                ON e.log = part.id AND e.id = ANY (p_ids)""",
}
_LINKS = {
    "parameter": " p_links bytea[],",
    "column": ", link",
    "value": ", e.link",
    "argument": ", p_links",
}
_LEASE = {
    "lease_parameters": """
    p_token bigint, p_owner text, p_since bigint, p_until bigint, p_renewed bigint, p_mark text,""",
    "lease_results": " OUT renewed bigint, OUT mark text,",
    "lease_columns": "token, owner, since, until, renewed, mark",
    "lease_values": """
            coalesce(p_token, 0), p_owner, coalesce(p_since, 0), coalesce(p_until, 0),
            coalesce(p_renewed, 0), p_mark""",
    "lease_current": "renewed := head.renewed; mark := head.mark; ",
    "lease_written": """,
            token = coalesce(p_token, l.token), since = coalesce(p_since, l.since),
            until = coalesce(p_until, l.until), renewed = coalesce(p_renewed, l.renewed),
            owner = CASE WHEN p_token IS NULL THEN l.owner ELSE p_owner END,
            mark = CASE WHEN p_token IS NULL THEN l.mark ELSE p_mark END""",
    # Read after the wait for the lock: the lease may have been renewed meanwhile.
    "clock_first": "",
    "clock_last": _CLOCK,
}
_SEEKS = {
    "settings": """
    SET enable_sort = off SET enable_seqscan = off SET enable_bitmapscan = off
    SET plan_cache_mode = force_generic_plan""",
    "own": _SEEK.format(log="head"),
    "shared": "part CROSS JOIN " + _SEEK.format(log="part"),
}

# For programs from before links were introduced; they write no links.
APPEND_1 = _APPEND.format(name="append_1", **_FIRST)
# For programs from before appends could acquire a lease.
APPEND_2 = _APPEND.format(name="append_2", **_FIRST | _LINKS)
APPEND_3 = _APPEND.format(name="append_3", **_FIRST | _LINKS | _LEASE | _SEEKS)
