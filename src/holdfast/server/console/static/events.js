// @ts-check
/** The events of a thread by their numbers, read in pages when they are needed. */
import { signal } from '@preact/signals';
import { get, sessionPath } from './api.js';
import { brief, visible } from './text.js';

const PAGE = 200;
const KEPT = 60; // pages

export class Events {
  /** @param {import('./live.js').Live} live */
  constructor(live) {
    this.live = live;
    /** @type {Map<number, any[]>} pages by their numbers */
    this.pages = new Map();
    /** @type {Set<number>} */
    this.asked = new Set();
    this.version = signal(0);
    /** @type {Map<string, string>} names of tools, by their calls */
    this.tools = new Map();
    live.listeners.add((event) => this.add(event));
  }

  /** @param {number} seq @returns {any} the event, if it is known */
  get = (seq) => this.pages.get(Math.floor((seq - 1) / PAGE))?.[(seq - 1) % PAGE];

  /** @param {any} event */
  add(event) {
    const number = Math.floor((event.seq - 1) / PAGE);
    const page = this.pages.get(number);
    const place = (event.seq - 1) % PAGE;
    if (!page && place) return; // read when it is needed
    this.pages.set(number, Object.assign([...(page ?? [])], { [place]: event }));
    this.name(event);
    this.version.value += 1;
  }

  /** Remember which tools an event calls. @param {any} event */
  name({ kind, data }) {
    if (kind === 'message.completed') for (const call of data?.calls ?? []) this.tools.set(call.id, call.name);
    if (kind === 'tool.started' && data) this.tools.set(data.call, data.name);
  }

  /** All events that are known, in their order. @returns {any[]} */
  known() {
    const pages = [...this.pages].sort(([one], [other]) => one - other);
    return pages.flatMap(([, page]) => page.filter(Boolean));
  }

  /** Read what is not known of a range. @param {number} from @param {number} upto */
  need(from, upto) {
    const last = Math.min(upto, this.live.head.peek());
    for (let number = Math.floor((Math.max(1, from) - 1) / PAGE); number <= Math.floor((last - 1) / PAGE); number += 1) {
      const page = this.pages.get(number) ?? [];
      const size = Math.min(PAGE, this.live.head.peek() - number * PAGE);
      let known = 0;
      while (known < size && page[known]) known += 1;
      if (known < size && !this.asked.has(number)) this.read(number, number * PAGE + known, number * PAGE + size);
    }
  }

  /** @param {number} number @param {number} after @param {number} upto */
  async read(number, after, upto) {
    this.asked.add(number);
    const query = { thread: this.live.thread, after, before: upto + 1, limit: PAGE, inline: false };
    const found = await get(sessionPath(this.live.id, 'events'), query).catch(() => null);
    this.asked.delete(number);
    if (!found) return;
    const page = [...(this.pages.get(number) ?? [])];
    for (const event of found.items) {
      page[(event.seq - 1) % PAGE] = event;
      this.name(event);
    }
    this.pages.delete(number);
    this.pages.set(number, page);
    if (this.pages.size > KEPT) this.pages.delete(/** @type {number} */ (this.pages.keys().next().value));
    this.version.value += 1;
  }
}

/** What a probe says about a call whose outcome was lost. @type {Record<string, string>} */
export const PROBED = { happened: 'it happened', not_happened: 'it did not happen', unknown: 'the probe does not know' };

/** What an event says, in a few words. @param {any} event @param {Map<string, string>} [tools]  names of tools, by their calls */
export const summary = (event, tools) => visible(said(event, tools).slice(0, 160));

/** @param {any} event @param {Map<string, string>} [tools] @returns {string} */
function said({ kind, data }, tools) {
  const d = data ?? {};
  const text = d.text ?? d.title ?? d.summary ?? d.name ?? d.error ?? d.reason ?? d.label ?? d.mode ?? d.model ?? '';
  if (kind === 'message.completed') return d.text || (d.calls ?? []).map((/** @type {any} */ one) => one.name).join(', ');
  if (kind === 'tool.finished') return [tools?.get(d.call), d.outcome && d.outcome !== 'ok' ? d.error ?? d.result?.error?.message ?? d.outcome : brief(d.result ?? d.content)].filter(Boolean).join(': ');
  if (kind === 'tool.probed') return [tools?.get(d.call), [PROBED[d.outcome], d.reason].filter(Boolean).join(', ')].filter(Boolean).join(': ');
  if (!text && d.call) return tools?.get(d.call) ?? '';
  if (kind === 'run.finished') return [d.status, d.code].filter(Boolean).join(': ');
  if (kind === 'pending.settled') return [d.outcome, d.reason].filter(Boolean).join(': ');
  if (kind === 'thread.forked') return `from ${d.parent} at event ${d.at}`;
  if (kind === 'metadata.changed' || kind === 'state.changed') return [...Object.keys(d.set ?? {}), ...(d.drop ?? [])].join(', ');
  if (kind === 'run.started') return '';
  return typeof text === 'string' ? text : '';
}

/** Whether an event says that something failed. @param {any} event */
export const failed = ({ kind, data }) =>
  (kind === 'run.finished' && (data?.status === 'failed' || data?.status === 'interrupted')) || kind === 'message.interrupted' ||
  (kind === 'tool.finished' && ['failed', 'unknown'].includes(data?.outcome));
