// @ts-check
/** The list of sessions: live, with filters that are in the address, and a search in all texts. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { get, isAbort, may, me } from './api.js';
import { onRow } from './changes.js';
import { Time, count } from './format.js';
import { html } from './html.js';
import { amend, route, to, toSession } from './router.js';
import { Status } from './status.js';
import { visible } from './text.js';

const PAGE = 50;
const SETTLED = 250; // ms without typing before a search begins
const FIRST = 300; // ms until sessions are counted: the list comes first
const COUNTED = 2_000; // ms between two counts, and more where counting takes long
const RESTS = 20; // times as long as a count took, until the next
const BEHIND = 1_000; // ms until a search is repeated whose index was behind
const GLANCE = { '': 'All', running: 'Running', waiting: 'Waiting', failed: 'Failed' };
const RUNS = ['running', 'waiting', 'done', 'failed', 'aborted', 'interrupted'];
const PHASES = ['created', 'active', 'suspended', 'expired'];
/** The filters of the list, by their names in the address, with a label. */
const FILTERS = { user: 'User', agent: 'Agent', run: 'Run status', phase: 'Phase', label: 'Label', metadata: 'Metadata',
  from: 'Active from', until: 'Active until' };

const SEARCHED = ['user', 'agent', 'phase', 'label', 'from', 'until']; // filters that a search has

/** @typedef {Record<string, string>} Filters */

/** @param {URLSearchParams} query @returns {Filters} */
const filtersOf = (query) => Object.fromEntries(Object.keys(FILTERS).flatMap((name) => (query.get(name) ? [[name, query.get(name) ?? '']] : [])));

/** The parameters of the API for filters. @param {Filters} filters @returns {import('./api.js').Query} */
function parameters({ from, until, ...rest }) {
  const seconds = (/** @type {string} */ day, /** @type {number} */ days) => {
    const at = new Date(`${day}T00:00`);
    at.setDate(at.getDate() + days);
    return at.getTime() / 1000;
  };
  return { ...rest, active_from: from && seconds(from, 0), active_until: until && seconds(until, 1) };
}

/** Whether a session that has changed belongs in the list. @param {any} row @param {Filters} filters */
function matches(row, { user, agent, run, phase, label, metadata }) {
  const [name, ...value] = (metadata ?? '').split('=');
  const found = row.metadata?.[name];
  return (!user || row.user === user) && (!agent || row.agent === agent) && (!run || row.run === run) &&
    (!phase || row.phase === phase) && (!label || Object.hasOwn(row.labels ?? {}, label)) &&
    (!metadata || found === value.join('=') || JSON.stringify(found) === value.join('='));
}

export function Sessions() {
  const { query } = route.value;
  const words = query.get('q') ?? '';
  const filters = filtersOf(query);
  return html`<section class="sessions">
    <div class="row headline"><h1 tabindex="-1">Sessions</h1><${Search} words=${words} /></div>
    <div class="row choices">${words ? html`<span class="muted">Messages, calls and results, the newest first</span>` : html`<${Glance} filters=${filters} />`}<span class="grow"></span>
      <${Filter} filters=${filters} names=${words ? SEARCHED : Object.keys(FILTERS)} /></div>
    ${words ? html`<${Found} key=${`?${query}`} words=${words} filters=${filters} />`
      : html`<${List} key=${`?${query}`} filters=${filters} />`}
  </section>`;
}

/** @param {{words: string}} props */
function Search({ words }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const timer = useRef(0);
  useEffect(() => {
    const focus = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== '/' || event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener('keydown', focus);
    return () => removeEventListener('keydown', focus);
  }, []);
  useEffect(() => {
    if (input.current && input.current !== document.activeElement) input.current.value = words;
  }, [words]);
  const typed = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => amend({ q: input.current?.value.trim() ?? '' }, { replace: true }), SETTLED);
  };
  return html`<input ref=${input} type="search" class="search" placeholder="Search in all messages and results ( / )"
    aria-label="Search in all messages and results" onInput=${typed} />`;
}

// What runs, waits and failed

/** @param {{filters: Filters}} props */
function Glance({ filters }) {
  const [counts, setCounts] = useState(/** @type {Record<string, number | null>} */ ({}));
  const { run = '', ...others } = filters;
  const key = JSON.stringify(others);
  useEffect(() => {
    let timer = 0;
    let over = false;
    let wait = COUNTED;
    const read = async () => {
      const start = performance.now();
      const asked = Object.keys(GLANCE).filter(Boolean).map(async (name) => {
        const page = await get('/sessions', { ...parameters(others), run: name, total: true, limit: 1 }).catch(() => null);
        return [name, page?.total ?? null];
      });
      const found = Object.fromEntries(await Promise.all(asked));
      wait = Math.max(COUNTED, RESTS * (performance.now() - start));
      if (!over) setCounts(found);
    };
    const later = (/** @type {number} */ ms) => (timer ||= setTimeout(() => ((timer = 0), read()), ms));
    later(FIRST);
    const stop = onRow(() => later(wait));
    return () => {
      over = true;
      clearTimeout(timer);
      stop();
    };
  }, [key]);
  return html`<div class="glance" role="group" aria-label="Run status">${Object.entries(GLANCE).map(([name, title]) => html`
    <a class="chip ${name}" href=${to('/', { ...others, run: name })} aria-current=${name === run ? 'true' : null}>${title}
      ${counts[name] != null && html` <b>${count(counts[name])}</b>`}</a>`)}</div>`;
}

// Filters

/** @param {{filters: Filters, names: string[]}} props */
function Filter({ filters, names }) {
  const [open, setOpen] = useState(false);
  const change = (/** @type {any} */ event) => amend({ [event.target.name]: event.target.value });
  const options = (/** @type {string[]} */ values) => html`<option value="">any</option>${values.map((one) => html`<option>${one}</option>`)}`;
  const choices = { run: RUNS, phase: PHASES, agent: me.value?.agents ?? [] };
  const field = (/** @type {string} */ name) => {
    const given = { name, value: filters[name] ?? '', onChange: change };
    if (name in choices && choices[/** @type {keyof choices} */ (name)].length) {
      return html`<select ...${given}>${options(choices[/** @type {keyof choices} */ (name)])}</select>`;
    }
    const day = name === 'from' || name === 'until';
    return html`<input ...${given} type=${day ? 'date' : 'text'} placeholder=${name === 'metadata' ? 'tier=gold' : ''} />`;
  };
  const shown = Object.entries(filters).filter(([name]) => name !== 'run' && names.includes(name));
  return html`
    ${shown.map(([name, value]) => html`<button class="pill accent" onClick=${() => amend({ [name]: null })}
      aria-label="Remove the filter ${name} ${value}">${FILTERS[/** @type {keyof FILTERS} */ (name)]}: ${value} ✕</button>`)}
    <div class="filter" onKeyDown=${(/** @type {KeyboardEvent} */ e) => e.key === 'Escape' && setOpen(false)}>
      <button aria-expanded=${open} onClick=${() => setOpen(!open)}>Filter</button>
      ${open && html`<div class="popover card">${Object.entries(FILTERS).map(([name, title]) => !names.includes(name) || (name === 'user' && !may('sessions:all')) ? null
        : html`<label><span>${title}</span>${field(name)}</label>`)}
        <button onClick=${() => setOpen(false)}>Done</button></div>`}
    </div>`;
}

// The list

/** @param {{filters: Filters}} props */
function List({ filters }) {
  const [rows, setRows] = useState(/** @type {any[] | null} */ (null));
  const [cursor, setCursor] = useState(/** @type {string | null} */ (null));
  const [problem, setProblem] = useState('');
  const [missing, setMissing] = useState(/** @type {string[]} */ ([]));
  const read = async (/** @type {string | null} */ after) => {
    try {
      const page = await get('/sessions', { ...parameters(filters), cursor: after, limit: PAGE });
      setRows((old) => (after ? unique([...(old ?? []), ...page.items]) : page.items));
      setCursor(page.cursor);
      setMissing(page.missing);
      setProblem('');
    } catch (error) {
      if (!isAbort(error)) setProblem(/** @type {Error} */ (error).message);
    }
  };
  useEffect(() => {
    read(null);
    return onRow((row) => {
      if (!row) read(null);
      else if (row.thread === 'main') setRows((old) => old && merged(old, row, filters));
    });
  }, []);
  if (problem && !rows) return html`<div class="empty"><h2>The sessions could not be read</h2><p>${problem}</p>
    <button onClick=${() => read(null)}>Try again</button></div>`;
  if (!rows) return html`<p class="loading">Loading…</p>`;
  if (!rows.length) return html`<${Nothing} filtered=${Object.keys(filters).length > 0} />`;
  return html`${missing.length > 0 && html`<p class="problem">Not listed: the sessions in ${missing.join(', ')}, which cannot be reached.</p>`}
    <ul class="list card" onKeyDown=${step}>${rows.map((row) => html`<${Row} key=${row.session} row=${row} />`)}</ul>
    ${cursor && html`<p class="paging"><button onClick=${() => read(cursor)}>Show more</button></p>`}
    ${problem && html`<p class="problem">${problem}</p>`}`;
}

/** @param {any[]} rows */
const unique = (rows) => [...new Map(rows.map((row) => [row.session, row])).values()];

/** A list in which a session has changed: it comes first, or goes if it no longer matches.
 * @param {any[]} rows @param {any} row @param {Filters} filters */
function merged(rows, row, filters) {
  const others = rows.filter((one) => one.session !== row.session);
  if (!matches(row, filters)) return others;
  const at = others.findIndex((one) => (one.active ?? 0) <= (row.active ?? 0));
  others.splice(at < 0 ? others.length : at, 0, row);
  return others;
}

/** Move between rows by the arrow keys, j and k. @param {KeyboardEvent} event */
function step(event) {
  const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (!by || !(event.target instanceof Element) || event.metaKey || event.ctrlKey) return;
  const links = [.../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll('a')];
  const next = links[links.findIndex((one) => one === event.target) + by];
  if (next) event.preventDefault();
  next?.focus();
}

/** @param {{row: any}} props */
function Row({ row }) {
  const waits = Object.values(row.pending ?? {});
  const labels = Object.keys(row.labels ?? {});
  const messages = row.counts?.messages ?? 0;
  return html`<li><a class="entry" href=${toSession(row.session)}>
    <${Status} run=${row.run} phase=${row.phase} />
    <span class="what"><span class="title cut">${visible(row.title || row.first_message || row.session)}</span>
      <span class="sub cut">${waits.length ? html`<span class="waits">${visible(waits.map((/** @type {any} */ one) => one.title ?? one.what).join(' · '))}</span>`
        : html`<span class="mono">${row.session}</span>`}</span></span>
    <span class="labels">${labels.slice(0, 3).map((one) => html`<span class="pill cut">${visible(one)}</span>`)}</span>
    <span class="cut muted who-is">${visible([row.agent, row.user].filter(Boolean).join(' · '))}</span>
    <span class="muted number">${count(messages)} ${messages === 1 ? 'message' : 'messages'}</span>
    <span class="muted when"><${Time} at=${row.last} /></span>
  </a></li>`;
}

/** @param {{filtered: boolean}} props */
function Nothing({ filtered }) {
  if (filtered) return html`<div class="empty"><h2>No session matches these filters</h2>
    <p><a class="button" href=${to('/')}>Show all sessions</a></p></div>`;
  return html`<div class="empty"><h2>No sessions yet</h2>
    <p>Begin one from your agent, with the client, or with <code>holdfast chat</code>. It appears here at once.</p></div>`;
}

// Search

/** @param {{words: string, filters: Filters}} props */
function Found({ words, filters }) {
  const [page, setPage] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState('');
  const read = async (/** @type {any} */ before, /** @type {AbortSignal} */ signal) => {
    const { active_from: since, active_until: until, user, agent, phase, label } = parameters(filters);
    const ms = (/** @type {any} */ seconds) => seconds && seconds * 1000;
    try {
      const query = { q: words, user, agent, phase, label, since: ms(since), until: ms(until), cursor: before?.cursor };
      const next = await get('/search', query, signal);
      setPage({ ...next, hits: [...(before?.hits ?? []), ...next.hits] });
      setProblem('');
    } catch (error) {
      if (!isAbort(error)) setProblem(/** @type {Error} */ (error).message);
    }
  };
  useEffect(() => {
    const abort = new AbortController();
    read(null, abort.signal);
    return () => abort.abort();
  }, []);
  const wanting = page?.behind && !page.hits.length;
  useEffect(() => {
    const abort = new AbortController();
    const timer = wanting ? setTimeout(() => read(null, abort.signal), BEHIND) : 0;
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [page, wanting]);
  if (problem) return html`<p class="problem" role="alert">${problem}</p>`;
  if (!page) return html`<p class="loading">Searching…</p>`;
  if (!page.hits.length && !page.cursor) return html`<div class="empty"><h2>Nothing found</h2>
    <p>No message, call or result has these words. ${page.behind && 'The newest events are not in the index yet.'}</p></div>`;
  return html`<ul class="list card hits" onKeyDown=${step}>${page.hits.map((/** @type {any} */ hit) => html`<${Hit} hit=${hit} />`)}</ul>
    ${page.cursor && html`<p class="paging"><button onClick=${() => read(page, new AbortController().signal)}>Show more</button></p>`}`;
}

/** @param {{hit: any}} props */
function Hit({ hit }) {
  const points = [...hit.excerpt];
  const parts = [];
  let from = 0;
  for (const [start, end] of hit.marks) {
    parts.push(visible(points.slice(from, start).join('')), html`<mark>${visible(points.slice(start, end).join(''))}</mark>`);
    from = end;
  }
  parts.push(visible(points.slice(from).join('')));
  return html`<li><a class="entry" href=${toSession(hit.session, { thread: hit.thread, at: hit.seq })}>
    <span class="what"><span class="title excerpt">${parts}</span>
      <span class="sub cut">${hit.role ?? hit.kind} in <span class="mono">${hit.session}</span>${hit.thread !== 'main' && ` / ${hit.thread}`}, event ${hit.seq}</span></span>
    <span class="muted when"><${Time} at=${hit.at} /></span></a></li>`;
}
