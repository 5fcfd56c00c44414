// @ts-check
/** The inbox: everything that waits for a person, over all sessions that the user may see. */
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { get, sessionPath } from './api.js';
import { onInbox, onRow } from './changes.js';
import { Time, count, threadName } from './format.js';
import { cls, html } from './html.js';
import { navigate, toSession } from './router.js';
import { Kind, Pending, decided, remember, settledHere } from './pending.js';
import { Text, visible } from './text.js';

const PAGE = 100;
const SAID = 4; // messages that are shown with an item
const LOST = 20; // items that went away, about which is asked who decided

/** @param {any} item */
const keyOf = (item) => `${item.session}\n${item.thread}\n${item.id}`;

/** Read so many pages of the inbox. @param {number} pages */
async function read(pages) {
  /** @type {any[]} */
  const items = [];
  let cursor;
  let missing = [];
  for (let left = pages; left > 0; left -= 1) {
    const page = await get('/pending', { limit: PAGE, cursor });
    items.push(...page.items);
    missing = page.missing ?? [];
    cursor = page.cursor;
    if (!cursor) break;
  }
  return { items, cursor, missing };
}

/** Find out who decided an item that somebody else settled. @param {any} item */
async function whoDecided(item) {
  const page = await get(sessionPath(item.session, 'events'), { thread: item.thread, kind: 'pending.settled', reverse: true, limit: 20 });
  const event = page.items.find((/** @type {any} */ one) => one.data?.id === item.id);
  if (event) remember({ item: item.id, session: item.session, title: item.title, outcome: event.data.outcome, by: event.actor, at: event.at, channel: event.data.channel });
}

export function Inbox() {
  const [list, setList] = useState(/** @type {{items: any[], cursor?: string, missing: string[]} | null} */ (null));
  const [problem, setProblem] = useState('');
  const [pages, setPages] = useState(1);
  const [chosen, setChosen] = useState('');
  const known = useRef(/** @type {any[]} */ ([]));
  const items = list?.items ?? [];
  const at = items.findIndex((one) => keyOf(one) === chosen);
  const place = useRef(0); // where the chosen item is, or was
  if (at >= 0) place.current = at;
  const next = (/** @type {any[]} */ rows) => rows[Math.max(0, Math.min(place.current, rows.length - 1))];

  const reload = async () => {
    try {
      const found = await read(pages);
      const there = new Set(found.items.map(keyOf));
      const mine = new Set(decided.peek().map((one) => `${one.session}\n${one.item}`));
      const lost = known.current.filter((one) => !there.has(keyOf(one)) && !mine.has(`${one.session}\n${one.id}`));
      lost.slice(0, LOST).forEach((one) => whoDecided(one).catch(() => {}));
      known.current = found.items;
      setProblem('');
      setList(found);
      setChosen((old) => {
        if (!found.items.length) return '';
        // What somebody else settles leaves its place empty: no other item comes under the cursor.
        return there.has(old) || (old && !settledHere.has(old)) ? old : keyOf(next(found.items));
      });
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  useEffect(() => {
    reload();
    return onInbox(reload);
  }, [pages]);

  const item = items[at];
  useLayoutEffect(() => { // a key always means what is shown
    const typed = (/** @type {KeyboardEvent} */ event) => press(event, items, at, place.current, (one) => setChosen(keyOf(one)));
    addEventListener('keydown', typed);
    return () => removeEventListener('keydown', typed);
  }, [list, at]);
  useEffect(() => document.querySelector('.inbox [aria-current="true"]')?.scrollIntoView({ block: 'nearest' }), [chosen]);

  if (problem && !list) return html`<section class="empty"><h1 tabindex="-1">The inbox cannot be shown</h1><p>${problem}</p><button onClick=${reload}>Try again</button></section>`;
  if (!list) return html`<p class="loading">Loading…</p>`;
  return html`<section class="inbox">
    <header class="row"><h1 tabindex="-1">Inbox</h1><span class="muted" role="status">${items.length ? `${count(items.length)}${list.cursor ? '+' : ''} waiting` : ''}</span>
      ${list.missing.length > 0 && html`<span class="pill warn">not available: ${list.missing.join(', ')}</span>`}<span class="grow"></span>
      ${items.length > 0 && html`<span class="small muted keys"><kbd>j</kbd> <kbd>k</kbd> choose · <kbd>a</kbd> approve · <kbd>d</kbd> deny · <kbd>?</kbd> all keys</span>`}</header>
    ${items.length ? html`<div class="split">
      <ul class="plain list" aria-label="Pending items">${items.map((one, n) => html`<li key=${keyOf(one)}><button class=${cls('item', n === at && 'here')} aria-current=${n === at ? 'true' : null}
        onClick=${() => setChosen(keyOf(one))}><span class="row"><${Kind} item=${one} /><span class="grow"></span><span class="small muted"><${Time} at=${one.at} /></span></span>
        <span class="cut title"><${Text} value=${one.title ?? one.what} limit=${160} /></span>
        <span class="small muted cut"><span class="mono">${one.session}</span>${one.thread !== 'main' && `, ${threadName(one.thread)}`}</span></button></li>`)}
        ${list.cursor && html`<li><button onClick=${() => setPages(pages + 1)}>Show more</button></li>`}</ul>
      <div class="chosen">${item ? html`<${Chosen} key=${keyOf(item)} row=${item} reload=${reload} />`
        : html`<p class="card row" role="status">This item does not wait any more. <button onClick=${() => setChosen(keyOf(next(items)))}>Next item</button></p>`}</div></div>`
      : html`<div class="empty"><h2>Nothing waits for a person</h2><p>Approvals, questions and calls whose outcome is unknown appear here as soon as an agent needs you.</p></div>`}
    <${Recent} />
  </section>`;
}

/** The chosen item, with its arguments and its controls. @param {{row: any, reload: () => void}} props */
function Chosen({ row, reload }) {
  const [item, setItem] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState('');
  useEffect(() => {
    let over = false;
    const load = () => get(sessionPath(row.session, 'pending'), { thread: row.thread }).then((page) => {
      if (over) return;
      const found = page.items.find((/** @type {any} */ one) => one.id === row.id);
      if (found) setItem(found);
      else reload();
    }, (error) => over || setProblem(error.message));
    load();
    const stop = onRow((one) => void (one?.session === row.session && load())); // somebody has voted
    return () => {
      over = true;
      stop();
    };
  }, []);
  return html`<p class="row small"><a class="mono cut" href=${toSession(row.session, { thread: row.thread })}>${row.session}</a><span class="muted" title=${row.thread}>${row.thread !== 'main' && threadName(row.thread)}</span></p>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${item ? html`<${Pending} item=${item} session=${row.session} done=${reload} /><${Before} row=${row} />` : html`<p class="loading">Loading…</p>`}`;
}

/** What was said before an item: an operator decides by it. @param {{row: any}} props */
function Before({ row }) {
  const [messages, setMessages] = useState(/** @type {any[]} */ ([]));
  useEffect(() => {
    get(sessionPath(row.session, 'transcript'), { thread: row.thread, limit: SAID }).then((page) => setMessages(page.items), () => {});
  }, []);
  const said = messages.filter((one) => one.text);
  if (!said.length) return null;
  return html`<section class="before small" aria-label="What was said before"><h3>What was said before</h3>${said.map((one) => html`<p key=${one.id}><strong>${visible(one.role === 'user' ? one.actor ?? 'user' : 'agent')}</strong> <span class="muted"><${Time} at=${one.at} /></span>
    <br /><${Text} value=${one.text} limit=${500} /></p>`)}
    <a href=${toSession(row.session, { thread: row.thread })}>Open the session</a></section>`;
}

/** What was decided since the page was opened. */
function Recent() {
  if (!decided.value.length) return null;
  return html`<section class="recent" aria-label="Decided"><h2>Decided while you were here</h2><div class="scroll" tabindex="0"><table><thead><tr><th>When</th><th>Decision</th><th>Who</th><th>What</th><th>Session</th></tr></thead><tbody>
    ${decided.value.map((one) => html`<tr key=${one.session + one.item}><td><${Time} at=${one.at} /></td>
      <td><span class="pill ${one.outcome === 'denied' ? 'bad' : 'good'}">${one.outcome}</span>${one.left ? html` <span class="small muted">${one.left} more needed</span>` : null}</td><td><${Text} value=${one.by ?? '–'} limit=${80} />${one.channel && html` <span class="small muted">over ${visible(String(one.channel))}</span>`}</td>
      <td><${Text} value=${one.title} limit=${120} /></td><td><a class="mono" href=${toSession(one.session)}>${one.session}</a></td></tr>`)}</tbody></table></div></section>`;
}

/** @param {KeyboardEvent} event @param {any[]} items @param {number} at  -1 if the chosen item is gone @param {number} place  where it was
 * @param {(item: any) => void} choose */
function press(event, items, at, place, choose) {
  const from = event.target instanceof Element ? event.target : document.body;
  if (event.ctrlKey || event.metaKey || event.altKey || from.closest('textarea, select, dialog, input:not([type="radio"], [type="checkbox"])')) return;
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
  if (step) {
    if (from.matches('input')) return;
    const next = items[Math.min(items.length - 1, Math.max(0, at < 0 ? place : at + step))];
    if (next) choose(next);
  } else if (event.key === 'o' && items[at]) navigate(toSession(items[at].session, { thread: items[at].thread }));
  else if (event.repeat || (event.key === 'Enter' && from.matches('a, button, input'))) return;
  else {
    const wanted = event.key === 'Enter' ? '.primary, [data-key]' : /^[a-z]$/.test(event.key) ? `[data-key="${event.key}"]` : '';
    const control = wanted ? document.querySelector(`.inbox .chosen :is(${wanted})`) : null;
    if (!(control instanceof HTMLElement)) return;
    if (event.key === 'Enter' || control.matches('input')) control.focus();
    else control.click();
  }
  event.preventDefault();
}
