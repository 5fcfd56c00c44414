// @ts-check
/** What a session page shows, kept up to date: the display, the conversation and text in flight. The
 * server folds the log; the page asks for the result again when events come. */
import { signal } from '@preact/signals';
import { follow, get, isAbort, sessionPath } from './api.js';

const TAIL = 30; // messages that are read again when something happens
const OLDER = 60; // messages of an older page
const QUIET = 100; // ms between two reads
const AGAIN = 2_000; // ms until a read is repeated that the server could not answer
const PAST = 40; // earlier states that are kept
const AHEAD = 3; // states that are read before they are asked for

/** @typedef {{id: string, seq: number, at: number, role: string, text?: string, thought?: string, parts?: any[], calls?: any[],
 *   actor?: string, model?: string, interrupted?: boolean, erased?: string, raw?: any}} Message */
/** @typedef {{id: string, text: string, thought: string, sizes: {text: number, thought: number}}} Flight  its sizes in code points */

/** Messages with a newer tail. A tail that does not overlap replaces them.
 * @param {Message[]} old @param {Message[]} tail */
export function joined(old, tail) {
  if (!tail.length || !old.length) return tail;
  const overlaps = old[old.length - 1].seq >= tail[0].seq;
  return overlaps ? [...old.filter((one) => one.seq < tail[0].seq), ...tail] : tail;
}

/** A thread of a session, live while it is followed. */
export class Live {
  /** @param {string} id @param {string} thread */
  constructor(id, thread) {
    this.id = id;
    this.thread = thread;
    this.row = signal(/** @type {any} */ (null));
    this.display = signal(/** @type {any} */ (null));
    this.messages = signal(/** @type {Message[] | null} */ (null));
    this.pending = signal(/** @type {any[]} */ ([]));
    this.more = signal(false);
    this.head = signal(0);
    this.flight = signal(/** @type {Flight | null} */ (null));
    this.problem = signal(/** @type {any} */ (null));
    this.over = signal('');
    /** @type {Set<(event: any) => void>} */
    this.listeners = new Set();
    this.timer = 0;
    this.busy = false;
    this.again = false;
    this.closed = false;
    this.fresh = false;
    this.frame = 0;
    this.stop = () => {};
    /** @type {any[]} */
    this.deltas = [];
  }

  /** Read it, and follow it. Returns how to stop. */
  start() {
    const begin = async () => {
      const cursor = await this.load();
      if (this.closed) return;
      if (cursor) this.stop = this.follow(cursor);
      else if (this.problem.peek()?.retryable) this.timer = setTimeout(begin, AGAIN);
    };
    begin();
    return () => {
      this.closed = true;
      clearTimeout(this.timer);
      cancelAnimationFrame(this.frame);
      this.stop();
    };
  }

  /** Read it once. Returns the cursor at which to follow it. @returns {Promise<string | null>} */
  async load() {
    try {
      const found = await get(sessionPath(this.id), { thread: this.thread });
      this.row.value = found.row;
      this.head.value = found.row.head;
      await this.read();
      return found.cursor;
    } catch (error) {
      if (!isAbort(error)) this.problem.value = error;
      return null;
    }
  }

  /** @param {string} cursor */
  follow(cursor) {
    return follow(sessionPath(this.id, 'events'), { thread: this.thread, after: cursor }, {
      event: (event) => this.happened(event),
      delta: (delta) => this.said(delta),
      caught_up: (data) => (data.head > this.head.value || this.flight.value) && this.later(),
      resync: () => {
        this.fresh = true;
        this.later();
      },
      refused: () => get(sessionPath(this.id), { thread: this.thread }).catch((error) => error.status === 404 && this.end('deleted')),
      end: ({ reason }) => (reason === 'deleted' || reason === 'moved') && this.end(reason),
    });
  }

  /** @param {string} reason */
  end(reason) {
    this.over.value = reason;
    this.stop();
  }

  /** @param {any} event */
  happened(event) {
    this.head.value = Math.max(this.head.value, event.seq);
    if (event.kind === 'thread.rewound') this.fresh = true;
    this.listeners.forEach((tell) => tell(event));
    this.later();
  }

  /** Collect text in flight, and show it with the next frame. @param {any} delta */
  said(delta) {
    this.deltas.push(delta);
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.flight.value = this.deltas.splice(0).reduce(grown, this.flight.value);
    });
  }

  later() {
    if (this.busy) this.again = true;
    else this.timer ||= setTimeout(() => ((this.timer = 0), this.read().catch((error) => this.failed(error))), QUIET);
  }

  /** @param {any} error */
  failed(error) {
    if (error.status === 404) this.end('deleted');
    else this.problem.value = error;
    if (error.retryable && !this.closed) setTimeout(() => this.later(), AGAIN);
  }

  async read() {
    this.busy = true;
    const fresh = this.fresh;
    const tail = fresh || !this.messages.peek() ? OLDER : TAIL;
    try {
      const [display, page] = await Promise.all([
        get(sessionPath(this.id, 'display'), { thread: this.thread }),
        get(sessionPath(this.id, 'transcript'), { thread: this.thread, limit: tail }),
      ]);
      const waits = Object.keys(display.pending ?? {}).length;
      const pending = waits ? (await get(sessionPath(this.id, 'pending'), { thread: this.thread })).items : [];
      this.show(display, page.items, pending, fresh || !this.messages.peek(), tail);
      this.problem.value = null;
    } catch (error) {
      if (/** @type {any} */ (error).status) throw error;
      this.again = true; // the server cannot be reached: the stream says so, and resumes
      await new Promise((done) => setTimeout(done, 1_000));
    } finally {
      this.busy = false;
      if (this.again && !this.closed) this.later();
      this.again = false;
    }
  }

  /** @param {any} display @param {Message[]} items @param {any[]} pending @param {boolean} anew @param {number} asked */
  show(display, items, pending, anew, asked) {
    const old = this.messages.peek() ?? [];
    const messages = anew ? items : joined(old, items);
    if (messages === items) this.more.value = items.length >= asked;
    if (anew) this.fresh = false;
    this.messages.value = messages;
    this.pending.value = pending;
    this.display.value = display;
    this.head.value = Math.max(this.head.peek(), display.head ?? 0);
    const { message } = display;
    const flight = this.flight.peek();
    if (message && !message.done) {
      if (!flight || flight.id !== message.id) this.flight.value = flying(message.id, message.text, message.thought);
    } else this.flight.value = null;
  }

  /** Read the messages before those that are known. */
  async older() {
    const known = this.messages.peek();
    if (!known?.length || !this.more.peek()) return;
    this.more.value = false;
    const page = await get(sessionPath(this.id, 'transcript'), { thread: this.thread, before: known[0].seq, limit: OLDER }).catch(() => null);
    const now = this.messages.peek() ?? [];
    if (page && now[0]?.seq === known[0].seq) this.messages.value = [...page.items, ...now];
    this.more.value = !page || page.items.length >= OLDER;
  }
}

/** @param {string} id @param {string} [text] @param {string} [thought] @returns {Flight} */
const flying = (id, text = '', thought = '') => ({ id, text, thought, sizes: { text: [...text].length, thought: [...thought].length } });

/** Text in flight with what follows it. A gap is left to the message itself.
 * @param {Flight | null} flight @param {any} delta @returns {Flight} */
function grown(flight, { message, offset, text, thought }) {
  const now = flight?.id === message ? /** @type {Flight} */ (flight) : flying(message);
  const field = thought ? 'thought' : 'text';
  const points = [...text];
  const known = now.sizes[field] - offset;
  if (known < 0 || known >= points.length) return now;
  const sizes = { ...now.sizes, [field]: offset + points.length };
  return { ...now, [field]: now[field] + points.slice(known).join(''), sizes };
}

/** A session as it was right after an event. */
export class Past {
  /** @param {Live} live */
  constructor(live) {
    this.id = live.id;
    this.thread = live.thread;
    this.head = live.head;
    this.shown = signal(/** @type {{at: number, display: any, messages: Message[], more: boolean} | null} */ (null));
    this.problem = signal('');
    this.kept = new Map();
    this.wanted = /** @type {number | null} */ (null);
    this.busy = false;
  }

  /** Show it as of an event; of many in a row, the last. @param {number | null} at */
  async go(at) {
    const before = this.wanted ?? Infinity;
    this.wanted = at;
    if (at == null) this.shown.value = null;
    else if (this.kept.has(at)) this.shown.value = this.kept.get(at);
    if (this.busy || at == null) return;
    this.busy = true;
    /** @type {number} */
    let next;
    do {
      next = this.wanted ?? at;
      const found = await this.read(next);
      if (this.wanted === next && found) this.shown.value = found;
      await this.ahead(next, next < before ? -1 : 1);
    } while (this.wanted != null && this.wanted !== next);
    this.busy = false;
  }

  /** Read the next states in the direction of a step. @param {number} at @param {number} by */
  async ahead(at, by) {
    for (let n = 1; n <= AHEAD && this.wanted === at; n += 1) {
      const next = at + n * by;
      if (next > 0 && next <= this.head.peek()) await this.read(next, true);
    }
  }

  /** @param {number} at @param {boolean} [quiet] whether failures are not told */
  async read(at, quiet = false) {
    const known = this.kept.get(at);
    if (known) return known;
    try {
      const [display, page] = await Promise.all([
        get(sessionPath(this.id, 'display'), { thread: this.thread, at }),
        get(sessionPath(this.id, 'transcript'), { thread: this.thread, at, limit: TAIL }),
      ]);
      const found = { at, display, messages: page.items, more: page.items.length >= TAIL };
      this.kept.set(at, found);
      if (this.kept.size > PAST) this.kept.delete(this.kept.keys().next().value);
      this.problem.value = '';
      return found;
    } catch (error) {
      if (!quiet) this.problem.value = /** @type {Error} */ (error).message;
      return null;
    }
  }

  async older() {
    const known = this.shown.peek();
    if (!known?.more || !known.messages.length) return;
    const query = { thread: this.thread, at: known.at, before: known.messages[0].seq, limit: OLDER };
    const page = await get(sessionPath(this.id, 'transcript'), query).catch(() => null);
    if (!page || this.shown.peek() !== known) return;
    this.shown.value = { ...known, messages: [...page.items, ...known.messages], more: page.items.length >= OLDER };
  }
}
