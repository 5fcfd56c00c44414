// @ts-check
/** The server's API: requests with the cookie of the login, errors with a code, and streams that
 * resume. */
import { computed, signal } from '@preact/signals';
import { parsed } from './json.js';
import { BASE } from './router.js';

const ROOT = `${BASE}/v1`;
const CHANGES = { 'Holdfast-Console': '1' };
const TRIES = 3; // of a change whose answer was lost; its key makes it happen once

/** @typedef {{principal: string, tenant: string, scopes: string[], version: string, agents: string[],
 *   stores: string[], two_person: boolean}} Me */

/** Who is logged in. Undefined until known, null if nobody is.
 * @type {import('@preact/signals').Signal<Me | null | undefined>} */
export const me = signal(undefined);
/** Streams that are interrupted and being resumed. */
const broken = signal(0);
export const offline = computed(() => broken.value > 0);

/** Whether the user has a scope. @param {string} scope */
export const may = (scope) => me.value?.scopes.includes(scope) ?? false;

export class ApiError extends Error {
  /** @param {number} status @param {{code?: string, message?: string, fields?: any, retryable?: boolean}} error */
  constructor(status, { code = 'unreachable', message = 'The server cannot be reached.', fields = {}, retryable = false }) {
    super(message);
    this.status = status;
    this.code = code;
    this.fields = fields;
    this.retryable = retryable;
  }
}

/** @typedef {Record<string, string | number | boolean | string[] | null | undefined>} Query */

/** The address of a resource of the API. @param {string} path @param {Query} [query] */
export function address(path, query = {}) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one != null && one !== '') parts.append(name, String(one));
    }
  }
  const search = parts.toString();
  return ROOT + path + (search && `?${search}`);
}

/** The path of a session, or of something of it. @param {string} id @param {...(string | number)} rest */
export const sessionPath = (id, ...rest) => ['/sessions', id, ...rest].map((part, n) => (n ? encodeURIComponent(part) : part)).join('/');

/** @param {string} path @param {Query} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = (path, query, signal) => request('GET', address(path, query), { signal });

/** Change something. A change whose answer was lost is sent again, and done once.
 * @param {string} method @param {string} path @param {unknown} [body] @param {Query} [query] @returns {Promise<any>} */
export async function send(method, path, body, query) {
  const headers = { ...CHANGES, 'Content-Type': 'application/json', 'Idempotency-Key': newKey() };
  const init = { headers, body: body === undefined ? undefined : JSON.stringify(body) };
  for (let left = TRIES; ; left -= 1) {
    try {
      return await request(method, address(path, query), init);
    } catch (error) {
      if (left === 1 || !(error instanceof ApiError) || error.status) throw error;
      await new Promise((done) => setTimeout(done, 500));
    }
  }
}

/** @param {string} method @param {string} url @param {RequestInit} [init] */
async function request(method, url, init = {}) {
  const answer = await fetch(url, { method, ...init }).catch((error) => {
    throw error.name === 'AbortError' ? error : new ApiError(0, {});
  });
  if (answer.ok) return answer.status === 204 ? null : parsed(await answer.text());
  const { error } = await answer.json().catch(() => ({ error: { code: 'server_error', message: answer.statusText } }));
  if (answer.status === 401) me.value = null;
  throw new ApiError(answer.status, error);
}

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, '0')).join('');
}

/** Whether an error only says that the request is no longer needed. @param {unknown} error */
export const isAbort = (error) => error instanceof Error && error.name === 'AbortError';

// Login

export async function identify() {
  try {
    me.value = await get('/me');
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
  }
}

/** @param {string} credential */
export async function login(credential) {
  const headers = { ...CHANGES, Authorization: `Bearer ${credential}` };
  await request('POST', `${BASE}/console/login`, { headers });
  await identify();
}

export async function logout() {
  await request('POST', `${BASE}/console/logout`, { headers: CHANGES });
  me.value = null;
}

// Streams

const FIRST_DELAY = 300; // ms before a stream that was cut is resumed
const LAST_DELAY = 5_000;
const FINAL = ['deleted', 'moved', 'finished', 'waiting'];

/** Follow a stream of server-sent events, and resume it whenever it is cut. Browsers allow few
 * connections to a server, so a page that is not visible holds none. Returns how to stop.
 * @param {string} path @param {Query} query
 * @param {Record<string, (data: any, id: string) => void>} on  what to do, by the name of an event; `refused` if the
 *   server refuses the stream
 * @returns {() => void} */
export function follow(path, query, on) {
  /** @type {EventSource | null} */
  let source = null;
  let after = query.after;
  let timer = 0;
  let delay = FIRST_DELAY;
  let cut = false;
  let over = false;

  const setCut = (/** @type {boolean} */ now) => {
    if (now !== cut) broken.value += now ? 1 : -1;
    cut = now;
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const stop = () => {
    over = true;
    document.removeEventListener('visibilitychange', watch);
    setCut(false);
    close();
  };
  const retry = () => {
    close();
    if (over || document.hidden) return;
    setCut(true);
    timer = setTimeout(open, delay);
    delay = Math.min(delay * 2, LAST_DELAY);
  };
  const failed = async () => {
    // An `EventSource` does not tell why it failed: ask, so that a 401 shows the login.
    await asked(source?.readyState === EventSource.CLOSED);
  };
  const asked = async (/** @type {boolean} */ refused) => {
    close();
    if (refused) {
      await get('/me').catch(() => {});
      if (me.value) on.refused?.({}, '');
    }
    if (me.value === null) stop();
    else if (!over) retry();
  };
  const open = () => {
    const opened = new EventSource(address(path, { ...query, after }));
    source = opened;
    opened.onopen = () => setCut(false);
    opened.onerror = failed;
    for (const name of new Set(['end', 'resync', ...Object.keys(on)])) {
      opened.addEventListener(name, (event) => {
        delay = FIRST_DELAY;
        if (event.lastEventId) after = event.lastEventId;
        const data = parsed(event.data);
        on[name]?.(data, event.lastEventId);
        if (name === 'resync' && data.cursor) after = data.cursor;
        if (name !== 'end') return;
        if (FINAL.includes(data.reason)) stop();
        else if (data.reason === 'closed') asked(true); // the login may have ended
        else retry();
      });
    }
  };
  const watch = () => {
    if (document.hidden) close();
    else if (!source) open();
  };
  document.addEventListener('visibilitychange', watch);
  watch();
  return stop;
}
