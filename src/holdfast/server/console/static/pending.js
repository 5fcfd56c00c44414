// @ts-check
/** A pending item, with what a person can do about it. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { ApiError, may, me, send, sessionPath } from './api.js';
import { Time } from './format.js';
import { cls, html } from './html.js';
import { parsed } from './json.js';
import { Text, asText, visible } from './text.js';

/** @typedef {{id: string, what: string, title: string, tool?: string, arguments?: any, at: number, expires?: number, detail?: any,
 *   thread: string, risk?: string, approvals?: number, approved_by?: string[], call?: string}} Item */
/** @typedef {{item: string, session: string, title: string, outcome: string, by: string | null, at: number, channel?: string, left?: number}} Decided */

/** What was decided while this page is open, the latest first.
 * @type {import('@preact/signals').Signal<Decided[]>} */
export const decided = signal([]);

/** Items that were settled in this page: session, thread and id. @type {Set<string>} */
export const settledHere = new Set();

/** @param {Decided} one */
export function remember(one) {
  decided.value = [one, ...decided.value.filter((other) => other.item !== one.item || other.session !== one.session)].slice(0, 100);
}

const NAMES = { approval: 'Approval', question: 'Question', plan: 'Plan', access: 'Access', external: 'External' };
const RISKS = { destructive: 'bad', high: 'bad', write: 'warn', medium: 'warn', safe: 'good', low: 'good' };

/** Whether nobody knows if a call took effect. @param {any} item */
export const isUnknown = (item) => item.what === 'external' && String(item.title).startsWith('Did this happen?');

/** What kind of item it is, and its risk. @param {{item: any}} props */
export function Kind({ item }) {
  const name = isUnknown(item) ? 'Unknown outcome' : NAMES[/** @type {keyof typeof NAMES} */ (item.what)] ?? visible(String(item.what));
  return html`<span class=${cls('pill', isUnknown(item) ? 'bad' : 'accent')}>${name}</span>
    ${item.risk && html`<span class="pill ${RISKS[/** @type {keyof typeof RISKS} */ (item.risk)] ?? ''}" title="A hint of the tool's author">${visible(String(item.risk))} risk</span>`}`;
}

/** @param {any} error */
function explained(error) {
  if (!(error instanceof ApiError)) return String(error?.message ?? error);
  if (error.code === 'already_decided') return 'Somebody else has decided this already.';
  if (error.code === 'not_pending') return 'This does not wait any more.';
  return error.message;
}

/** @param {{item: Item, session: string, done?: () => void}} props  `done` is called after a decision */
export function Pending({ item, session, done }) {
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const [said, setSaid] = useState(/** @type {any} */ (null));
  const card = useRef(/** @type {HTMLElement | null} */ (null));
  const decide = async (/** @type {string} */ verb, /** @type {any} */ body) => {
    setBusy(true);
    setProblem('');
    try {
      const answer = await send('POST', sessionPath(session, 'pending', item.id, verb), body, { thread: item.thread });
      if (verb !== 'extend') {
        setSaid(answer);
        remember({ item: item.id, session, title: item.title, outcome: answer.outcome, by: answer.by, at: Date.now(), channel: 'http', left: answer.left });
        if (answer.outcome !== 'voted') settledHere.add(`${session}\n${item.thread}\n${item.id}`);
        done?.();
      }
    } catch (error) {
      setProblem(explained(error));
    }
    setBusy(false);
  };
  const over = said && said.outcome !== 'voted';
  return html`<article class="pending card" ref=${card} aria-label="Pending: ${visible(String(item.title)).slice(0, 100)}" data-item=${item.id}>
    <header class="row"><${Kind} item=${item} /><span class="grow"></span>
      <span class="small muted">since <${Time} at=${item.at} /></span></header>
    <h2><${Text} value=${item.title} limit=${400} /></h2>
    <${Votes} item=${item} said=${said} />
    <${Detail} item=${item} />
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${over ? html`<p class="muted" role="status">${said.outcome} by ${said.by}</p>`
      : may('pending:decide') ? html`<${Controls} item=${item} busy=${busy} decide=${decide} />`
      : html`<p class="muted small">You may read this; deciding needs the scope <code>pending:decide</code>.</p>`}
    <${Expiry} item=${item} busy=${busy || over} decide=${decide} />
  </article>`;
}

/** @param {{item: Item, said: any}} props */
function Votes({ item, said }) {
  const needed = item.approvals ?? 1;
  if (needed < 2) return null;
  const by = item.approved_by ?? [];
  const all = said?.outcome === 'voted' && !by.includes(said.by) ? [...by, said.by] : by;
  return html`<p class="votes"><strong>${all.length} of ${needed}</strong> approvals${all.length ? html`: ${all.map((name, n) => [n ? ', ' : '', html`<${Text} value=${name} limit=${80} />`])}` : ''}
    ${all.includes(me.value?.principal ?? '') && html` <span class="pill good">you approved</span>`}</p>`;
}

/** @param {{item: Item}} props */
function Detail({ item }) {
  const { question, plan, path, reason } = item.detail ?? {};
  if (item.what === 'plan') return html`<${Text} class="block" value=${plan} />`;
  if (item.what === 'access') return html`<p>The agent asks to use <code>${visible(asText(path))}</code>: <${Text} value=${reason} limit=${1_000} /></p>`;
  if (item.what === 'question') return question === item.title ? null : html`<${Text} class="block" value=${question} />`;
  return item.arguments == null ? null : html`<${Text} class="block mono" value=${item.arguments} limit=${2_000} />`;
}

/** @param {{item: Item, busy: boolean, decide: (verb: string, body: any) => void}} props */
function Controls(props) {
  const { item } = props;
  if (isUnknown(item)) return html`<${Outcome} ...${props} />`;
  if (['approval', 'plan', 'access'].includes(item.what)) return html`<${Approval} ...${props} />`;
  return html`<${Answer} ...${props} />`;
}

/** Put the focus on what has just been shown, before the next key is pressed. */
function useFocus() {
  const ref = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => ref.current?.focus(), []);
  return ref;
}

/** A line of text, sent with Enter and left with Escape.
 * @param {{label: string, button: string, busy: boolean, leave: () => void, submit: (text: string) => void, start?: string, rows?: number, needed?: boolean}} props */
function Line({ label, button, busy, leave, submit, start = '', rows = 1, needed = false }) {
  const [text, setText] = useState(start);
  const field = useFocus();
  const go = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!busy && (text.trim() || !needed)) submit(text.trim());
  };
  const typed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Escape') leave();
    if (event.key === 'Enter' && !event.isComposing && (rows === 1 ? !event.shiftKey : event.ctrlKey || event.metaKey)) go(event);
  };
  return html`<form class="line" onSubmit=${go}><label><span class="small muted">${label}</span>
    <textarea ref=${field} rows=${rows} class=${rows > 1 ? 'mono' : ''} value=${text} onKeyDown=${typed} spellcheck=${rows === 1}
      onInput=${(/** @type {any} */ e) => setText(e.target.value)}></textarea></label>
    <div class="row"><button class="primary" disabled=${busy || (needed && !text.trim())}>${button}</button>
      <button type="button" class="quiet" onClick=${leave}>Cancel</button></div></form>`;
}

/** @param {{item: Item, busy: boolean, decide: (verb: string, body: any) => void}} props */
function Approval({ item, busy, decide }) {
  const [open, setOpen] = useState('');
  const [wrong, setWrong] = useState('');
  const leave = () => (setOpen(''), setWrong(''));
  if (open === 'deny') return html`<${Line} label="Reason (the model reads it; optional)" button="Deny" busy=${busy} leave=${leave}
    submit=${(/** @type {string} */ reason) => decide('deny', reason ? { reason } : {})} />`;
  if (open === 'edit') {
    const submit = (/** @type {string} */ text) => {
      try {
        decide('approve', { arguments: parsed(text) });
      } catch (error) {
        setWrong(`This is not JSON: ${/** @type {Error} */ (error).message}`);
      }
    };
    return html`${wrong && html`<p class="problem" role="alert">${wrong}</p>`}
      <${Line} label="Arguments as JSON (Ctrl+Enter approves)" button="Approve with these arguments" busy=${busy} rows=${8} needed leave=${leave}
        start=${JSON.stringify(item.arguments, null, 2)} submit=${submit} />`;
  }
  const voted = (item.approvals ?? 1) > 1 && item.approved_by?.includes(me.value?.principal ?? '');
  const served = item.what === 'approval' && item.arguments != null && !me.value?.two_person && me.value?.agents.length;
  return html`<div class="row">
    <button class="primary" data-key="a" disabled=${busy || voted} onClick=${() => decide('approve', {})}>Approve</button>
    ${served ? html`<button data-key="e" disabled=${busy} onClick=${() => setOpen('edit')}>Edit and approve…</button>` : null}
    <button class="danger" data-key="d" disabled=${busy} onClick=${() => setOpen('deny')}>Deny…</button>
  </div>`;
}

/** A call that was running when its process ended: did it take effect?
 * @param {{item: Item, busy: boolean, decide: (verb: string, body: any) => void}} props */
function Outcome({ item, busy, decide }) {
  const [open, setOpen] = useState(false);
  if (open) return html`<${Line} label="What came of it? The model reads this as the result of the call." button="It happened" busy=${busy}
    start="It happened." needed leave=${() => setOpen(false)} submit=${(/** @type {string} */ answer) => decide('answer', { answer })} />`;
  return html`<p>The process ended while <code>${visible(item.tool ?? 'the tool')}</code> was running. Look where it acts, then say what is so.</p>
    <div class="row">
      <button data-key="y" disabled=${busy} onClick=${() => setOpen(true)}>Yes, it happened…</button>
      <button data-key="n" disabled=${busy} onClick=${() => decide('deny', { reason: 'It did not happen.' })}>No, it did not</button>
      <button class="danger" data-key="r" disabled=${busy} onClick=${() => decide('approve', {})} title="If it did happen, it happens twice">Run it again</button>
    </div>`;
}

/** @param {{item: Item, busy: boolean, decide: (verb: string, body: any) => void}} props */
function Answer({ item, busy, decide }) {
  const [open, setOpen] = useState('');
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const options = /** @type {any[]} */ (Array.isArray(item.detail?.options) ? item.detail.options : []);
  const many = item.detail?.selection === 'multi_select';
  const leave = () => setOpen('');
  const submit = (/** @type {string} */ answer) => decide('answer', { answer: many ? [answer] : answer });
  if (open === 'answer') return html`<${Line} label="Answer" button="Answer" busy=${busy} needed leave=${leave} submit=${submit} />`;
  if (open === 'deny') return html`<${Line} label="Reason (optional)" button="Decline" busy=${busy} leave=${leave}
    submit=${(/** @type {string} */ reason) => decide('deny', reason ? { reason } : {})} />`;
  const choose = (/** @type {string} */ label) => setChosen(many ? (chosen.includes(label) ? chosen.filter((one) => one !== label) : [...chosen, label]) : [label]);
  return html`${options.length > 0 && html`<fieldset class="options"><legend class="small muted">${many ? 'Choose any number' : 'Choose one'}</legend>
      ${options.slice(0, 100).map((one, n) => html`<label><input type=${many ? 'checkbox' : 'radio'} name="option ${item.id}" data-key=${n ? null : 'c'} checked=${chosen.includes(one.label)}
        onChange=${() => choose(one.label)} /> <${Text} value=${one.label} limit=${200} />${one.description && html` <span class="small muted"><${Text} value=${one.description} limit=${400} /></span>`}</label>`)}</fieldset>`}
    <div class="row">
      ${options.length ? html`<button class="primary" data-key="a" disabled=${busy || (!chosen.length && !many)} onClick=${() => decide('answer', { answer: many ? chosen : chosen[0] })}>Answer</button>`
        : html`<button class="primary" data-key="a" disabled=${busy} onClick=${() => setOpen('answer')}>Answer…</button>`}
      <button class="danger" data-key="d" disabled=${busy} onClick=${() => setOpen('deny')}>Decline…</button></div>`;
}

const LONGER = { '1 hour': 3_600, '1 day': 86_400, '1 week': 604_800, never: null };

/** When an item expires, and until when it can be extended.
 * @param {{item: Item, busy: boolean, decide: (verb: string, body: any) => void}} props */
function Expiry({ item, busy, decide }) {
  if (item.expires == null) return null;
  const change = (/** @type {any} */ event) => {
    const name = event.target.value;
    if (name in LONGER) decide('extend', { seconds: LONGER[/** @type {keyof typeof LONGER} */ (name)] });
    event.target.value = '';
  };
  return html`<p class="small muted row">Expires <${Time} at=${item.expires} />
    ${may('pending:decide') && html`<select aria-label="Extend" disabled=${busy} onChange=${change}><option value="">Extend…</option>
      ${Object.keys(LONGER).map((name) => html`<option value=${name}>${name === 'never' ? 'Never expires' : `${name} from now`}</option>`)}</select>`}</p>`;
}
