// @ts-check
/** The address of the page: which page it names, and changes of it without loading anything. */
import { computed, signal } from '@preact/signals';

/** The path at which the server's app is mounted. */
export const BASE = document.documentElement.dataset.base ?? '';
const ROOT = `${BASE}/console`;

const location_ = signal(new URL(location.href));

/** @typedef {{page: 'sessions' | 'session' | 'inbox' | 'store' | 'unknown', id: string, query: URLSearchParams}} Route */

/** What the address names. */
export const route = computed(() => read(location_.value));

/** @param {URL} url @returns {Route} */
function read(url) {
  const [first = '', id = '', ...more] = url.pathname.slice(ROOT.length).split('/').filter(Boolean);
  const query = url.searchParams;
  if (!first || (first === 'sessions' && !id)) return { page: 'sessions', id: '', query };
  if (first === 'sessions' && !more.length) return { page: 'session', id: decoded(id), query };
  if ((first === 'inbox' || first === 'store') && !id) return { page: first, id: '', query };
  return { page: 'unknown', id: '', query };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A path within the console, with a query without its empty parts.
 * @param {string} path @param {Record<string, string | number | null | undefined>} [query] */
export function to(path, query = {}) {
  const parts = Object.entries(query).filter(([, value]) => value != null && value !== '');
  const search = new URLSearchParams(parts.map(([name, value]) => [name, String(value)])).toString();
  return ROOT + (path === '/' ? '' : path) + (search && `?${search}`);
}

/** The page of a session, or of a thread or an event of it.
 * @param {string} id @param {{thread?: string | null, at?: number | null, tab?: string | null}} [place] */
export function toSession(id, { thread, at, tab } = {}) {
  return to(`/sessions/${encodeURIComponent(id)}`, { thread: thread === 'main' ? null : thread, at, tab });
}

/** @param {string} href @param {{replace?: boolean}} [how] */
export function navigate(href, { replace = false } = {}) {
  const url = new URL(href, location.href);
  if (url.href === location.href) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', url);
  location_.value = url;
}

/** Change parts of the query; null removes one.
 * @param {Record<string, string | number | null>} changes @param {{replace?: boolean}} [how] */
export function amend(changes, how) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value == null || value === '') url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  }
  navigate(url.href, how);
}

/** Follow links within the console without loading a page. */
export function followLinks() {
  addEventListener('popstate', () => (location_.value = new URL(location.href)));
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    const special = event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button !== 0;
    if (!link || special || event.defaultPrevented || link.target || link.hasAttribute('download')) return;
    const url = new URL(link.href);
    const inside = url.pathname === ROOT || url.pathname.startsWith(`${ROOT}/`);
    if (url.origin !== location.origin || !inside || url.pathname.includes('/static/')) return;
    event.preventDefault();
    navigate(url.href);
  });
}
