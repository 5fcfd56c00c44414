// @ts-check
/** The conversation of a thread: messages, reasoning, tool calls with their results, sub-agents,
 * attachments, and text as it is written. Few rows are in the page at once. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, address, may, send, sessionPath } from './api.js';
import { PROBED } from './events.js';
import { Copy, Time, count } from './format.js';
import { cls, html } from './html.js';
import { Live } from './live.js';
import { markdown } from './markdown.js';
import { Pending, isUnknown } from './pending.js';
import { amend, navigate, toSession } from './router.js';
import { Status } from './status.js';
import { Text, brief, visible } from './text.js';

const SHOWN = 25; // rows at first
const MOST = 150; // rows at once
const STEP = 40; // rows that one step adds
const CALLS = 20; // calls of one message that are shown at first
const NEAR = 600; // px from an end at which more rows are shown
const END = 48; // px from the end that still count as the end
const POLLED = 2_000; // ms between two reads of a sub-agent that is not followed
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** @typedef {import('./live.js').Message} Message */
/** @typedef {{id: string, thread: string, display: any, pending: any[], live: boolean, deep: number, served: boolean}} About
 *   which session the rows are of; `live` if they are its newest state */

/** @param {{messages: Message[], more: boolean, older: () => void, about: About, flight?: import('@preact/signals').Signal<any>}} props */
export function Conversation({ messages, more, older, about, flight }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const { rows, skipped, hidden, up, down } = useRows(messages, more, older);
  const scrolled = useEnd(box, up, down, skipped);
  return html`<div class="conversation" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label="Conversation"><div class="rows">
    ${(more || hidden > 0) && html`<button class="quiet older" onClick=${up}>Show earlier messages</button>`}
    ${!messages.length && html`<div class="empty"><h2>No messages ${about.live ? 'yet' : 'at this event'}</h2></div>`}
    ${rows.map((message) => html`<${Entry} key=${message.id} message=${message} about=${about} />`)}
    ${!skipped && html`<${Tail} about=${about} flight=${flight} messages=${messages} />`}
    ${skipped > 0 && html`<button class="quiet older" onClick=${down}>Show later messages</button>`}
  </div></div>`;
}

/** Which messages are in the page. @param {Message[]} messages @param {boolean} more @param {() => void} older */
function useRows(messages, more, older) {
  const [range, setRange] = useState({ size: SHOWN, skipped: 0 });
  const end = messages.length - Math.min(range.skipped, messages.length);
  const from = Math.max(0, end - range.size);
  const up = () => {
    if (from <= STEP && more) older();
    if (from > 0 || more) setRange(({ size, skipped }) => ({ size: Math.min(MOST, size + STEP), skipped: skipped + Math.max(0, size + STEP - MOST) }));
  };
  const down = () => setRange(({ size, skipped }) => ({ size, skipped: Math.max(0, skipped - STEP) }));
  return { rows: messages.slice(from, end), skipped: messages.length - end, hidden: from, up, down };
}

/** Stay at the end while text is added, and show more rows near either end.
 * @param {{current: HTMLElement | null}} box @param {() => void} up @param {() => void} down @param {number} skipped */
function useEnd(box, up, down, skipped) {
  const stays = useRef(true);
  const settled = useRef(0);
  const toEnd = () => {
    if (stays.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  useLayoutEffect(toEnd);
  useEffect(() => {
    const watch = new ResizeObserver(toEnd);
    if (box.current?.firstElementChild) watch.observe(box.current.firstElementChild);
    return () => watch.disconnect();
  }, []);
  return () => {
    const at = /** @type {HTMLElement} */ (box.current);
    const left = at.scrollHeight - at.scrollTop - at.clientHeight;
    stays.current = left < END && !skipped;
    if (Date.now() - settled.current < 100) return;
    if (at.scrollTop < NEAR && !stays.current) {
      if (!at.scrollTop) at.scrollTop = 1; // browsers keep the place of rows, but not at the very top
      up();
    } else if (left < NEAR && skipped) down();
    else return;
    settled.current = Date.now();
  };
}

/** What follows the last message: text in flight, what is pending, how the run ended.
 * @param {{about: About, flight?: import('@preact/signals').Signal<any>, messages: Message[]}} props */
function Tail({ about, flight, messages }) {
  const { display, pending, live } = about;
  const calls = new Set(messages.slice(-STEP).flatMap((one) => (one.calls ?? []).map((call) => call.id)));
  const loose = pending.filter((item) => !calls.has(item.call));
  return html`
    ${flight && html`<${Writing} flight=${flight} messages=${messages} />`}
    ${loose.map((item) => html`<${Decision} key=${item.id} item=${item} about=${about} />`)}
    ${live && display?.queued > 0 && html`<p class="note">${display.queued} ${display.queued === 1 ? 'message waits' : 'messages wait'} in the queue.</p>`}
    ${display?.error && html`<div class="failure" role="alert"><strong>The run ended with ${display.error.code}</strong><${Text} value=${display.error.problem} /></div>`}
    ${live && display && html`<${Unanswered} about=${about} message=${messages[messages.length - 1]} />`}
    ${live && display?.running && !flight?.value && html`<p class="note working"><i class="dot"></i>${PHASES[display.phase] ?? 'Working'}…</p>`}`;
}

/** A message that nothing answers here, as at the end of a fork. @param {{about: About, message?: Message}} props */
function Unanswered({ about, message }) {
  const { id, thread, display, served, deep } = about;
  const [problem, setProblem] = useState('');
  const over = message?.role !== 'user' || display.running || display.queued || display.error || message.seq <= (display.state?.run?.seq ?? 0);
  if (over || !served || deep || !may('sessions:write') || ['sealed', 'suspended', 'expired'].includes(display.phase)) return null;
  const ask = () => send('POST', sessionPath(id, 'messages', message.seq, 'regenerate'), undefined, { thread })
    .then((made) => navigate(toSession(id, { thread: made.thread })), (error) => setProblem(error.message));
  return html`<p class="note row">This message has no answer in this thread. <button onClick=${ask} title="In a thread of its own, which begins before it">Send it again</button>
    ${problem && html`<span class="problem" role="alert">${problem}</span>`}</p>`;
}

const PHASES = /** @type {Record<string, string>} */ ({ waiting_model: 'Waiting for the model', running_tool: 'Running a tool', tool: 'Running a tool', streaming: 'Writing' });

/** @param {{flight: import('@preact/signals').Signal<any>, messages: Message[]}} props */
function Writing({ flight, messages }) {
  const now = flight.value;
  if (!now || messages.some((one) => one.id === now.id)) return null;
  return html`<article class="message assistant writing"><div class="content">
    ${now.thought && html`<${Thought} text=${now.thought} open=${!now.text} />`}
    ${now.text ? markdown(now.text) : null}<i class="caret"></i></div></article>`;
}

// Messages

/** @param {{message: Message, about: About}} props */
function Entry({ message, about }) {
  const { role, text, thought, parts = [], calls = [] } = message;
  const user = role === 'user';
  return html`<article class=${cls('message', role)} data-seq=${message.seq}>
    <header><span class="author">${visible(user ? message.actor ?? 'user' : about.display?.agent ?? 'assistant')}</span>
      ${message.model && html`<span class="muted small">${visible(message.model)}</span>`}
      ${message.interrupted && html`<span class="pill bad">interrupted</span>`}
      <span class="muted small"><${Time} at=${message.at} /></span>
      <${Actions} message=${message} about=${about} /></header>
    <div class="content">
      ${message.erased != null && html`<p class="muted">Erased: ${message.erased}</p>`}
      ${thought && html`<${Thought} text=${thought} />`}
      ${text ? (user ? html`<${Text} value=${text} />` : markdown(text)) : null}
      ${message.raw != null && html`<pre class="value"><${Text} value=${message.raw} /></pre>`}
      ${parts.map((part, n) => html`<${Attachment} key=${n} part=${part} about=${about} />`)}
      ${calls.length > 0 && html`<${Calls} calls=${calls} about=${about} />`}
    </div></article>`;
}

/** @param {{text: string, open?: boolean}} props */
const Thought = ({ text, open = false }) => html`<details class="thought" open=${open}><summary>Reasoning</summary><${Text} value=${text} /></details>`;

/** What one can do with a message. @param {{message: Message, about: About}} props */
function Actions({ message, about }) {
  const { id, thread, deep } = about;
  const [edited, setEdited] = useState(/** @type {string | null} */ (null));
  const [problem, setProblem] = useState('');
  if (deep) return null;
  const anew = async (/** @type {string} */ what, /** @type {any} */ body = undefined) => {
    try {
      const made = await send('POST', sessionPath(id, 'messages', message.seq, what), body, { thread });
      navigate(toSession(id, { thread: made.thread }));
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  const writes = may('sessions:write') && about.served && message.role === 'user';
  return html`<span class="actions">
    ${writes && html`<button class="quiet small" onClick=${() => anew('regenerate')} title="Send it again, in a thread of its own">Regenerate</button>
      <button class="quiet small" onClick=${() => setEdited(message.text ?? '')} title="Send it with other text, in a thread of its own">Edit</button>`}
    <button class="quiet small" onClick=${() => amend({ at: message.seq })} title="Show the session as it was at this event">#${message.seq}</button>
    ${message.text && html`<${Copy} text=${message.text} label="Copy the message" />`}</span>
    ${problem && html`<span class="problem" role="alert">${problem}</span>`}
    ${edited != null && html`<form class="edit" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); anew('edit', { text: edited }); }}>
      <textarea rows="3" aria-label="Other text" value=${edited} onInput=${(/** @type {any} */ e) => setEdited(e.target.value)}></textarea>
      <div class="row"><button class="primary">Send in a new thread</button><button type="button" onClick=${() => setEdited(null)}>Cancel</button></div></form>`}`;
}

/** @param {{part: any, about: About}} props */
function Attachment({ part, about }) {
  if (part?.type !== 'blob') return html`<pre class="value"><${Text} value=${part} /></pre>`;
  const name = part.name || part.media_type;
  const path = sessionPath(about.id, 'blobs', part.sha256);
  const image = IMAGES.includes(part.media_type);
  return html`<figure class="attachment">${image && html`<${Picture} src=${address(path, { type: part.media_type })} name=${name} />`}
    <figcaption><a href=${address(path)} download=${part.name || ''}><${Text} value=${name} limit=${200} /></a>
      <span class="muted small">${part.media_type}, ${count(part.size)} bytes</span></figcaption></figure>`;
}

/** @param {{src: string, name: string}} props */
function Picture({ src, name }) {
  const [broken, setBroken] = useState(false);
  if (broken) return html`<p class="muted">This image cannot be shown.</p>`;
  return html`<img loading="lazy" src=${src} alt=${name} onError=${() => setBroken(true)} />`;
}

// Tool calls

/** @param {{calls: any[], about: About}} props */
function Calls({ calls, about }) {
  const [shown, setShown] = useState(CALLS);
  const left = calls.length - shown;
  return html`<div class="calls">${calls.slice(0, shown).map((call) => html`<${Call} key=${call.id} call=${call} about=${about} />`)}
    ${left > 0 && html`<button class="small" onClick=${() => setShown(shown + 5 * CALLS)}>Show ${count(Math.min(left, 5 * CALLS))} of ${count(left)} more calls</button>`}</div>`;
}

/** How a call stands: its outcome, or what the display says of one that is open. @param {any} call @param {About} about */
function statusOf(call, about) {
  if (call.outcome) return call.outcome.outcome;
  return about.display?.tools?.[call.id]?.status ?? (call.started ? 'running' : 'proposed');
}

/** @param {{call: any, about: About}} props */
function Call({ call, about }) {
  const [open, setOpen] = useState(false);
  const item = about.live ? about.pending.find((one) => one.call === call.id && (one.what !== 'external' || isUnknown(one))) : null;
  const status = statusOf(call, about);
  const { outcome } = call;
  const fine = outcome?.outcome === 'ok';
  const toggled = (/** @type {any} */ event) => setOpen(event.currentTarget.open);
  return html`<details class="call ${status}" onToggle=${toggled}>
    <summary><${Status} run=${status} /><code class="name">${visible(call.name)}</code><span class="cut muted brief">${brief(call.arguments)}</span>
      ${!open && outcome && html`<span class=${cls('cut', 'brief', 'result', !fine && 'problem')}>${brief(fine ? outcome.result ?? outcome.content : outcome.error ?? outcome.content ?? outcome.result)}</span>`}</summary>
    ${open && html`<div class="inside">
      <${Value} title="Arguments" value=${call.arguments} />
      ${call.probed && html`<p class="muted small">The outcome was lost. Probe: ${PROBED[call.probed]}.</p>`}
      ${outcome?.error != null && html`<${Value} title="Error ${outcome.code ?? ''}" value=${outcome.error} bad=${true} />`}
      ${outcome && outcome.result !== undefined && html`<${Value} title="Result" value=${outcome.result} />`}
      ${outcome?.content != null && html`<${Value} title="What the model read" value=${outcome.content} />`}
      ${(outcome?.stored ?? []).map((/** @type {any} */ one) => html`<p class="small"><a href=${address(sessionPath(about.id, 'blobs', one.sha256), { type: one.media_type })} download=${`${call.name}.${one.media_type === 'application/json' ? 'json' : 'txt'}`}>The whole result</a> <span class="muted">${count(one.length)} characters</span></p>`)}
      ${about.display?.tools?.[call.id]?.progress != null && !outcome && html`<${Value} title="Progress" value=${about.display.tools[call.id].progress} />`}
      ${(call.name === 'subagent' || about.display?.subagents?.[call.id]) && html`<${Nested} call=${call} about=${about} />`}
      ${outcome && about.live && !about.deep && html`<button class="quiet small" onClick=${() => amend({ at: outcome.seq })}>Show the session right after it (#${outcome.seq})</button>`}
    </div>`}
  </details>${item && html`<${Decision} item=${item} about=${about} />`}`;
}

/** @param {{item: any, about: About}} props */
const Decision = ({ item, about }) => html`<div class="decision"><${Pending} item=${item} session=${about.id} /></div>`;

/** @param {{title: string, value: unknown, bad?: boolean}} props */
function Value({ title, value, bad = false }) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  return html`<div class=${cls('labelled', bad && 'bad')}><div class="row"><h3>${title}</h3><${Copy} text=${text ?? ''} label="Copy: ${title}" /></div>
    <pre class="value"><${Text} value=${value} limit=${2_000} /></pre></div>`;
}

let followed = false; // one sub-agent at a time: browsers allow few connections to a server

/** Keep a running sub-agent up to date. Returns how to stop. @param {Live} live */
function keep(live) {
  if (followed) {
    const timer = setInterval(() => live.load(), POLLED);
    live.load();
    return () => clearInterval(timer);
  }
  followed = true;
  const stop = live.start();
  return () => {
    followed = false;
    stop();
  };
}

/** The conversation of a sub-agent, within the call that started it. @param {{call: any, about: About}} props */
function Nested({ call, about }) {
  const thread = about.display?.subagents?.[call.id]?.thread ?? `sub/${call.id}`;
  const over = call.outcome != null;
  const live = useMemo(() => new Live(about.id, thread), [about.id, thread, over]);
  useEffect(() => {
    if (!over) return keep(live);
    live.load();
    return undefined;
  }, [live]);
  const problem = live.problem.value;
  const place = toSession(about.id, { thread });
  if (problem) return html`<p class="muted small">${problem instanceof ApiError && problem.status === 404 ? 'The sub-agent has not begun.' : problem.message}</p>`;
  if (!live.messages.value) return html`<p class="loading">Loading…</p>`;
  const inner = { ...about, thread, display: live.display.value, pending: live.pending.value, live: !over, deep: about.deep + 1 };
  return html`<div class="labelled"><div class="row"><h3>Sub-agent</h3><a href=${place}>Open its thread</a></div><div class="nested">
    ${live.messages.value.map((message) => html`<${Entry} key=${message.id} message=${message} about=${inner} />`)}
    ${!over && html`<${Writing} flight=${live.flight} messages=${live.messages.value} />`}</div></div>`;
}
