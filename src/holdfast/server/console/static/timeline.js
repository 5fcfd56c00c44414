// @ts-check
/** The timeline: every event with its time, as a waterfall. Bars are on a scale of their run, on
 * which idle time is folded. Only rows in view are in the page. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { failed, summary } from './events.js';
import { Time, cost, count, duration } from './format.js';
import { cls, html } from './html.js';
import { amend } from './router.js';
import { Text } from './text.js';

const HEIGHT = 30; // px of a row
const EXTRA = 12; // rows beyond the view
const REACH = 150; // events around the view that are read
const IDLE = 2_000; // ms without work that are folded
const FOLDED = 150; // ms that a folded gap takes on the scale
const OPENS = /** @type {Record<string, string>} */ ({ 'model.called': 'model', 'tool.started': 'tool', 'pending.opened': 'waits', 'run.started': 'run', 'run.resumed': 'run' });
const CLOSES = /** @type {Record<string, string>} */ ({ 'message.completed': 'model', 'message.interrupted': 'model', 'tool.finished': 'tool', 'pending.settled': 'waits',
  'run.waiting': 'run', 'run.finished': 'run' });

/** @typedef {{from: number, upto: number | null, kind: string}} Span  of numbers of events */

/** @param {{events: import('./events.js').Events, at: number | null}} props */
export function Timeline({ events, at }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const head = events.live.head.value;
  const [view, setView] = useState({ first: Math.max(1, head - 60), last: head });
  const [open, setOpen] = useState(/** @type {number | null} */ (null));
  const stays = useRef(true);
  const measure = () => {
    const found = box.current;
    if (!found) return;
    stays.current = found.scrollHeight - found.scrollTop - found.clientHeight < HEIGHT;
    const first = Math.max(1, Math.floor(found.scrollTop / HEIGHT) + 1 - EXTRA);
    setView({ first, last: Math.min(head, first + Math.ceil(found.clientHeight / HEIGHT) + 2 * EXTRA) });
  };
  useEffect(() => {
    if (stays.current && at == null && box.current) box.current.scrollTop = box.current.scrollHeight;
    measure();
  }, [head]);
  useEffect(() => reveal(box.current, at), [at]);
  useEffect(() => events.need(view.first - REACH, view.last + REACH), [view.first, view.last, head]);
  const version = events.version.value;
  const { spans, scales } = useMemo(() => measured(events.known()), [version]);
  const rows = [];
  for (let seq = view.first; seq <= Math.min(view.last, head); seq += 1) rows.push(seq);
  return html`<div class="timeline" ref=${box} onScroll=${measure} tabindex="0" aria-label="Timeline">
    <div style=${{ height: `${head * HEIGHT}px` }}><ol style=${{ transform: `translateY(${(view.first - 1) * HEIGHT}px)` }}>${rows.map((seq) => html`<${Row} key=${seq} seq=${seq} event=${events.get(seq)} before=${events.get(seq - 1)} span=${spans.get(seq)} scales=${scales} tools=${events.tools} get=${events.get}
      here=${seq === at} later=${at != null && seq > at} open=${open === seq} toggle=${() => setOpen(open === seq ? null : seq)} />`)}</ol></div>
  </div>${open != null && html`<${Detail} event=${events.get(open)} close=${() => setOpen(null)} />`}`;
}

/** Scroll to an event that is not in view. @param {HTMLElement | null} box @param {number | null} at */
function reveal(box, at) {
  if (!box || at == null) return;
  const top = (at - 1) * HEIGHT;
  if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 2 * HEIGHT) box.scrollTop = top - box.clientHeight / 2;
}

// The scale

/** What an event begins or ends. @param {any} event */
function subject({ kind, data, run, id }) {
  if (kind.startsWith('tool.')) return `tool ${data?.call ?? id}`;
  if (kind.startsWith('pending.')) return `pending ${data?.id ?? id}`;
  return `${OPENS[kind] ?? CLOSES[kind]} ${run}`;
}

/** The spans of the events that are known, and the scale of each run. They do not
 * depend on what is in view, so that bars stay where they are while one scrolls. @param {any[]} events */
function measured(events) {
  /** @type {Map<number, Span>} */
  const spans = new Map();
  /** @type {Map<string, Span>} */
  const running = new Map();
  /** @type {Map<string, Scale>} */
  const scales = new Map();
  let working = 0; // spans that are open in which a model or a tool works
  for (const event of events) {
    const { seq, kind, run, at } = event;
    if (run) scaleOf(scales, run).add(at, working > 0);
    if (kind in OPENS) {
      const span = { from: seq, upto: null, kind: OPENS[kind] };
      const before = running.get(subject(event)); // a call that continues has a second start
      if (before) before.upto = seq;
      working += works(span) - works(before);
      spans.set(seq, span);
      running.set(subject(event), span);
    } else if (kind in CLOSES) {
      const span = running.get(subject(event));
      if (span) span.upto = seq;
      working -= works(span);
      running.delete(subject(event));
    }
  }
  return { spans, scales };
}

/** @param {Span | undefined} span */
const works = (span) => Number(span?.kind === 'model' || span?.kind === 'tool');

/** @param {Map<string, Scale>} scales @param {string} run */
function scaleOf(scales, run) {
  const known = scales.get(run) ?? new Scale();
  scales.set(run, known);
  return known;
}

/** Times of a run on a line from 0 to 100, with long idle gaps folded. */
class Scale {
  /** @type {number[]} */
  times = [];
  /** @type {number[]} */
  places = [];

  /** @param {number} at @param {boolean} working whether something ran since the time before */
  add(at, working) {
    const last = this.times.length - 1;
    const gap = last < 0 ? 0 : Math.max(0, at - this.times[last]);
    this.times.push(at);
    this.places.push(last < 0 ? 0 : this.places[last] + (gap > IDLE && !working ? FOLDED : Math.max(gap, 1)));
  }

  /** @param {number} at */
  place(at) {
    let low = 0;
    let high = this.times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.times[middle] <= at) low = middle;
      else high = middle - 1;
    }
    return (this.places[low] / Math.max(1, this.places[this.places.length - 1])) * 100;
  }
}

// Rows

/** @param {any} props */
function Row({ seq, event, before, span, scales, tools, get, here, later, open, toggle }) {
  if (!event) return html`<li class="tick"><span class="mono muted">${seq}</span></li>`;
  const end = span?.upto ? get(span.upto) : null;
  const scale = event.run && scales.get(event.run);
  const gap = before ? event.at - before.at : 0;
  const idle = gap > IDLE && !['message.completed', 'message.interrupted', 'tool.finished'].includes(event.kind);
  return html`<li class=${cls('tick', here && 'here', later && 'later', failed(event) && 'bad')}>
    <button class="quiet seq mono" onClick=${() => amend({ at: seq })} title="Show the session as it was at event ${seq}">${seq}</button>
    <button class="quiet label cut" aria-expanded=${open} onClick=${toggle}><b>${event.kind}</b> <span class="muted">${summary(event, tools)}</span></button>
    <span class="figures small muted">${idle ? html`<span class="idle" title="Idle before this event">⋯ ${duration(gap)}</span>` : figures(event, end)}</span>
    <span class="small muted when"><${Time} at=${event.at} /></span>
    ${scale && html`<${Bar} left=${scale.place(event.at)} right=${end ? scale.place(end.at) : null} kind=${span?.kind} runs=${span && !span.upto} />`}
  </li>`;
}

/** Tokens and cost of a model's message, or how long something took. @param {any} event @param {any} end */
function figures({ kind, data, at }, end) {
  const usage = data?.usage ?? {};
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  if (kind === 'message.completed' && tokens) return `${count(tokens)} tokens${data.cost != null ? `, ${cost(data.cost)}` : ''}`;
  return end ? duration(end.at - at) : '';
}

/** @param {{left: number, right: number | null, kind?: string, runs?: boolean}} props */
function Bar({ left, right, kind, runs }) {
  const end = right ?? (runs ? 100 : left);
  const style = { left: `${Math.min(left, 99)}%`, width: `${Math.max(1, end - left)}%` };
  return html`<span class="wave" aria-hidden="true"><i class=${cls('bar', kind ?? 'point', runs && 'runs')} style=${style}></i></span>`;
}

/** @param {{event: any, close: () => void}} props */
function Detail({ event, close }) {
  if (!event) return null;
  return html`<div class="detail"><div class="row"><h3>#${event.seq} ${event.kind}</h3><span class="muted small"><${Time} at=${event.at} /></span>
    ${event.actor && html`<span class="muted small">by ${event.actor}</span>`}<span class="grow"></span>
    <button onClick=${() => amend({ at: event.seq })}>Go to it</button><button class="quiet icon" onClick=${close} aria-label="Close">✕</button></div>
    <pre class="value"><${Text} value=${event.data} limit=${6_000} /></pre></div>`;
}
