"""The tables and functions of the full-text index: terms of events, one row per event.

The index is in the same database as the events, so triggers remove its rows in the transactions
that delete logs or erase events, whichever program runs them. Each removal also increments a
number in `search_epochs`. A transaction that adds rows locks that number, and adds nothing if it
changed since the events were read. All of it can be dropped: the next search creates it again.

The functions have the rights of the owner of the schema, because a program may run as another user.
"""

from __future__ import annotations

BUCKETS = 256
EDITION = "1"  # version of these tables; tables of another version are replaced

_RIGHTS = "SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
# One plan, with and without statistics.
_PLAN = """SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET jit = off SET plan_cache_mode = force_generic_plan"""

DROP = """
DROP TABLE IF EXISTS hf.search_docs, hf.search_logs, hf.search_tenants, hf.search_epochs,
    hf.search_meta;
"""

TABLES = f"""
CREATE TABLE hf.search_meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);
INSERT INTO hf.search_meta VALUES
    ('edition', '{EDITION}'), ('mark', '?' || clock_timestamp()), ('claim', ' 0');
CREATE TABLE hf.search_tenants (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE hf.search_epochs (bucket integer PRIMARY KEY, number bigint NOT NULL);
INSERT INTO hf.search_epochs
    SELECT bucket, extract(epoch FROM clock_timestamp()) * 1000000
    FROM generate_series(0, {BUCKETS - 1}) AS g (bucket);
CREATE TABLE hf.search_logs (
    log bigint PRIMARY KEY, name text COLLATE "C" NOT NULL,
    seq bigint NOT NULL, link text, rewinds text NOT NULL, version bigint NOT NULL
);
CREATE TABLE hf.search_docs (
    tenant bigint NOT NULL, id bigint NOT NULL, log bigint NOT NULL, seq bigint NOT NULL,
    terms tsvector NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX search_docs_seq ON hf.search_docs (log, seq);
CREATE INDEX search_docs_terms ON hf.search_docs USING gin (terms);
"""

# `search_1` reads the newest events and checks each, which is fast for frequent words; as soon as
# the words turn out to be rare, the inverted index finds the rest. `+ 0` keeps other indexes out.
# `search_flush_1` sorts the entries of a batch into the inverted index at once, which takes a fifth
# of the time that one entry after the other takes.
FUNCTIONS = f"""
CREATE OR REPLACE FUNCTION hf.search_1(
    p_tenant bigint, p_query tsquery, p_below bigint, p_least bigint, p_limit integer
) RETURNS TABLE (id bigint, log bigint, seq bigint) LANGUAGE plpgsql STABLE
    SET enable_sort = off SET enable_bitmapscan = on {_PLAN} AS $function$
#variable_conflict use_column
DECLARE
    below bigint := p_below;
    looked integer := 0;
    before integer;
    found integer := 0;
    doc record;
BEGIN
    LOOP
        before := looked;
        FOR doc IN
            SELECT d.id, d.log, d.seq, d.terms @@ p_query AS matches FROM hf.search_docs AS d
            WHERE d.tenant = p_tenant AND d.id < below AND d.id >= p_least
            ORDER BY d.id DESC LIMIT 500
        LOOP
            looked := looked + 1;
            below := doc.id;
            IF doc.matches THEN
                id := doc.id; log := doc.log; seq := doc.seq;
                RETURN NEXT;
                found := found + 1;
                IF found >= p_limit THEN
                    RETURN;
                END IF;
            END IF;
        END LOOP;
        IF looked < before + 500 THEN
            RETURN;
        END IF;
        EXIT WHEN looked >= 20000 OR looked::bigint * p_limit > 10000 * found;
    END LOOP;
    RETURN QUERY
        SELECT d.id, d.log, d.seq FROM hf.search_docs AS d
        WHERE d.terms @@ p_query AND d.tenant + 0 = p_tenant
            AND d.id + 0 < below AND d.id + 0 >= p_least
        ORDER BY d.id DESC LIMIT p_limit - found;
END
$function$;
CREATE OR REPLACE FUNCTION hf.search_flush_1() RETURNS bigint LANGUAGE sql {_RIGHTS}
    AS $function$ SELECT gin_clean_pending_list('hf.search_docs_terms') $function$;
CREATE OR REPLACE FUNCTION hf.search_reset_1() RETURNS void LANGUAGE plpgsql {_RIGHTS} AS $function$
BEGIN
    UPDATE hf.search_epochs SET number = number + 1;
    TRUNCATE hf.search_docs, hf.search_logs, hf.search_tenants;
    UPDATE hf.search_meta SET value = '?' || clock_timestamp() WHERE name = 'mark';
END
$function$;
CREATE OR REPLACE FUNCTION hf.search_log_1() RETURNS trigger LANGUAGE plpgsql {_RIGHTS}
    {_PLAN} AS $function$
BEGIN
    IF NEW.state = 0 THEN
        -- A restored log has old times: the indexer must look at all logs to find it.
        UPDATE hf.search_meta SET value = '?' || clock_timestamp() WHERE name = 'mark';
    ELSE
        UPDATE hf.search_epochs SET number = number + 1 WHERE bucket = NEW.id % {BUCKETS};
        DELETE FROM hf.search_docs WHERE log = NEW.id;
        DELETE FROM hf.search_logs WHERE log = NEW.id;
    END IF;
    RETURN NULL;
EXCEPTION WHEN undefined_table THEN
    RETURN NULL; -- the index was dropped
END
$function$;
CREATE OR REPLACE FUNCTION hf.search_events_1() RETURNS trigger LANGUAGE plpgsql {_RIGHTS}
    {_PLAN} AS $function$
DECLARE
    logs bigint[];
    seqs bigint[];
BEGIN
    -- Also the forks that share the events.
    WITH RECURSIVE part (log, seq) AS (
        SELECT c.log, c.seq FROM changed AS c
        UNION
        SELECT l.id, part.seq FROM part JOIN hf.logs AS l
            ON l.base = part.log AND l.shared >= part.seq
    ) SELECT array_agg(part.log), array_agg(part.seq) INTO logs, seqs FROM part;
    UPDATE hf.search_epochs SET number = number + 1
        WHERE bucket IN (SELECT DISTINCT l % {BUCKETS} FROM unnest(logs) AS u (l));
    DELETE FROM hf.search_docs AS d USING unnest(logs, seqs) AS u (log, seq)
        WHERE d.log = u.log AND d.seq = u.seq;
    RETURN NULL;
EXCEPTION WHEN undefined_table THEN
    RETURN NULL; -- the index was dropped
END
$function$;
"""

# Appends set no state and change no event, so they run neither trigger. The index on `active` finds
# the logs that changed recently; it changes at most once a second for each log.
TRIGGERS = """
CREATE TRIGGER search_log AFTER UPDATE OF state ON hf.logs FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION hf.search_log_1();
CREATE TRIGGER search_events AFTER UPDATE ON hf.events REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hf.search_events_1();
CREATE INDEX logs_changed ON hf.logs (active);
"""

SEARCH = TABLES + FUNCTIONS + TRIGGERS
AGAIN = DROP + TABLES + FUNCTIONS
TABLE_NAMES = ("search_meta", "search_tenants", "search_epochs", "search_logs", "search_docs")
