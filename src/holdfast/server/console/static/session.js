// @ts-check
/** One session: its conversation, with the timeline, the state or the operations beside it, and the
 * scrub bar below. */
import { useEffect, useMemo, useState } from 'preact/hooks';
import { get, may, me, send, sessionPath } from './api.js';
import { Conversation } from './conversation.js';
import { Events } from './events.js';
import { Copy, cost, count, threadName } from './format.js';
import { cls, html } from './html.js';
import { Live, Past } from './live.js';
import { navigate, route, to, toSession } from './router.js';
import { Scrub } from './scrub.js';
import { State } from './state.js';
import { Status } from './status.js';
import { visible } from './text.js';
import { Timeline } from './timeline.js';

const TABS = { conversation: 'Conversation', timeline: 'Timeline', state: 'State', operations: 'Operations' };
const WIDE = matchMedia('(min-width: 1000px)');

/** @param {{id: string}} props */
export function Session({ id }) {
  const thread = route.value.query.get('thread') ?? 'main';
  return html`<${Thread} key=${thread} id=${id} thread=${thread} />`;
}

/** @param {{id: string, thread: string}} props */
function Thread({ id, thread }) {
  const { live, past, events } = useMemo(() => {
    const made = new Live(id, thread);
    return { live: made, past: new Past(made), events: new Events(made) };
  }, [id, thread]);
  useEffect(() => live.start(), [live]);
  const at = number(route.value.query.get('at'));
  useEffect(() => void past.go(at), [past, at]);
  const problem = live.problem.value;
  if (live.over.value) return html`<${Gone} title=${`This session was ${live.over.value}`} />`;
  if (problem?.status === 404) return html`<${Gone} title="This session does not exist" />`;
  if (problem && !live.messages.value) return html`<${Gone} title="The session cannot be shown" text=${problem.message} />`;
  if (!live.messages.value) return html`<p class="loading">Loading…</p>`;
  return html`<${Opened} live=${live} past=${past} events=${events} at=${at} />`;
}

/** @param {string | null} text */
const number = (text) => (text && /^\d{1,15}$/.test(text) && Number(text) > 0 ? Number(text) : null);

/** @param {{title: string, text?: string}} props */
const Gone = ({ title, text = '' }) => html`<section class="empty"><h1 tabindex="-1">${title}</h1><p>${text}</p>
  <p><a class="button" href=${to('/')}>All sessions</a></p></section>`;

/** @param {{live: Live, past: Past, events: Events, at: number | null}} props */
function Opened({ live, past, events, at }) {
  const wide = useWide();
  const asked = route.value.query.get('tab') ?? '';
  const tab = Object.hasOwn(TABS, asked) && !(wide && asked === 'conversation') ? asked : wide ? 'timeline' : 'conversation';
  const { id, thread } = live;
  const then = at == null ? null : past.shown.value;
  const source = then ? past : live;
  const display = then ? then.display : live.display.value;
  const served = (me.value?.agents ?? []).includes(live.row.value?.agent);
  const agent = display.agent ?? live.row.value?.agent;
  const about = { id, thread, display: { ...display, agent }, pending: then ? [] : live.pending.value, live: !then, deep: 0, served };
  return html`<section class=${cls('session', then && 'past')} data-at=${then ? then.at : null}>
    <${Header} live=${live} display=${display} />
    <nav class="tabs" aria-label="Parts of the session">${Object.entries(TABS).filter(([name]) => !wide || name !== 'conversation').map(([name, title]) => html`
      <a href=${toSession(id, { thread, at, tab: name })} aria-current=${name === tab ? 'page' : null} class="tab">${title}</a>`)}</nav>
    ${(wide || tab === 'conversation') && html`<div class="main"><h2 class="unseen">Conversation</h2>
      <${Conversation} key=${then ? 'past' : 'live'} messages=${(then ? then.messages : live.messages.value) ?? []} more=${then ? then.more : live.more.value}
        older=${() => source.older()} about=${about} flight=${then ? undefined : live.flight} />
      ${!then && served && may('sessions:write') && thread.startsWith('sub/') === false && html`<${Composer} live=${live} />`}</div>`}
    ${tab !== 'conversation' && html`<aside class="side" aria-label=${TABS[/** @type {keyof TABS} */ (tab)]}><h2 class="unseen">${TABS[/** @type {keyof TABS} */ (tab)]}</h2>
      ${tab === 'timeline' && html`<${Timeline} events=${events} at=${at} />`}
      ${tab === 'state' && html`<${State} display=${display} />`}
      ${tab === 'operations' && html`<${Operations} tenant=${me.value?.tenant} id=${id} session=${id} thread=${thread} state=${live} />`}</aside>`}
    <${Scrub} live=${live} past=${past} events=${events} at=${at} served=${served} />
  </section>`;
}

function useWide() {
  const [wide, setWide] = useState(WIDE.matches);
  useEffect(() => {
    const changed = () => setWide(WIDE.matches);
    WIDE.addEventListener('change', changed);
    return () => WIDE.removeEventListener('change', changed);
  }, []);
  return wide;
}

/** @param {{live: Live, display: any}} props */
function Header({ live, display }) {
  const [main, setMain] = useState(/** @type {any} */ (null)); // which has the session's title and user
  useEffect(() => {
    if (live.thread !== 'main') get(sessionPath(live.id)).then((found) => setMain(found.row), () => {});
  }, [live]);
  const row = live.row.value;
  const named = main ?? row;
  const usage = display.usage ?? {};
  const run = display.state?.run?.status ?? row.run;
  const sealed = live.display.value.phase === 'sealed';
  return html`<header class="about">
    <h1 tabindex="-1" class="cut">${visible(named.title || named.first_message || live.id)}</h1>
    <${Status} run=${run} phase=${sealed ? 'sealed' : null} />
    <span class="mono small muted cut">${live.id}</span><${Copy} text=${live.id} label="Copy the session's id" />
    <span class="grow"></span>
    <span class="small muted cut">${visible([row.agent, named.user, display.model].filter(Boolean).join(' · '))}</span>
    ${usage.total_tokens != null && html`<span class="small muted">${count(usage.total_tokens)} tokens${usage.cost != null && `, ${cost(usage.cost)}`}</span>`}
    <${Threads} live=${live} />
  </header>`;
}

/** The other threads of the session. @param {{live: Live}} props */
function Threads({ live }) {
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const { id, thread } = live;
  useEffect(() => {
    get(sessionPath(id, 'threads'), { limit: 100 }).then((page) => setRows(page.items), () => {});
  }, [id, thread]);
  const names = [...new Set(['main', ...rows.map((row) => row.thread).reverse(), thread])];
  if (names.length < 2) return null;
  const title = (/** @type {string} */ name) => {
    const row = rows.find((one) => one.thread === name);
    return visible(row?.title || threadName(name));
  };
  return html`<select aria-label="Thread" value=${thread} onChange=${(/** @type {any} */ e) => navigate(toSession(id, { thread: e.target.value }))}>
    ${names.map((name) => html`<option value=${name} selected=${name === thread}>${title(name)}</option>`)}</select>`;
}

/** @param {{live: Live}} props */
function Composer({ live }) {
  const [text, setText] = useState('');
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const { id, thread } = live;
  const run = async (/** @type {string} */ what, /** @type {any} */ body) => {
    setBusy(true);
    try {
      await send('POST', sessionPath(id, what), body, { thread });
      setProblem('');
      if (what === 'messages') setText('');
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
    setBusy(false);
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (text.trim() && !busy) run('messages', { content: text });
  };
  const typed = (/** @type {KeyboardEvent} */ event) => event.key === 'Enter' && !event.shiftKey && !event.isComposing && submit(event);
  return html`<form class="composer" onSubmit=${submit}>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <textarea rows="1" placeholder="Send a message" aria-label="Message" value=${text} onKeyDown=${typed}
      onInput=${(/** @type {any} */ e) => setText(e.target.value)}></textarea>
    ${live.display.value.state?.run?.status === 'running' && html`<button type="button" class="danger" onClick=${() => run('abort', {})}>Stop</button>`}
    <button class="primary" disabled=${busy || !text.trim()}>Send</button></form>`;
}

/** @param {any} props */
function Operations(props) {
  const [shown, setShown] = useState(/** @type {any} */ (null));
  useEffect(() => {
    import('./operations.js').then((module) => setShown(() => module.Operations));
  }, []);
  return shown && html`<${shown} ...${props} />`;
}
