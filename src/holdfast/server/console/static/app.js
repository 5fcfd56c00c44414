// @ts-check
/** The console: its shell, the login, and which page is shown. */
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { html } from './html.js';
import { identify, logout, me, offline } from './api.js';
import { countPending, followChanges, waiting } from './changes.js';
import { followLinks, route, to } from './router.js';
import { Help } from './help.js';
import { Login } from './login.js';
import { Theme } from './theme.js';

/** A component of a module that is loaded when it is first shown.
 * @param {() => Promise<any>} load @param {string} name */
function lazy(load, name) {
  /** @type {import('@preact/signals').Signal<any>} */
  const found = signal(null);
  return (/** @type {any} */ props) => {
    useEffect(() => {
      if (!found.peek()) load().then((module) => (found.value = module[name]));
    }, []);
    return found.value ? html`<${found.value} ...${props} />` : html`<p class="loading">Loading…</p>`;
  };
}

const PAGES = {
  sessions: lazy(() => import('./sessions.js'), 'Sessions'),
  session: lazy(() => import('./session.js'), 'Session'),
  inbox: lazy(() => import('./inbox.js'), 'Inbox'),
  store: lazy(() => import('./operations.js'), 'Store'),
  unknown: () => html`<section class="empty"><h1 tabindex="-1">This page does not exist</h1>
    <p>Go to <a href=${to('/')}>all sessions</a>.</p></section>`,
};
const TITLES = { sessions: 'Sessions', session: 'Session', inbox: 'Inbox', store: 'Store', unknown: 'Not found' };

function App() {
  const [problem, setProblem] = useState('');
  useEffect(() => {
    identify().catch((error) => setProblem(error.message));
  }, []);
  if (problem) return html`<main class="empty"><h1>${problem}</h1>
    <p><button onClick=${() => location.reload()}>Try again</button></p></main>`;
  if (me.value === undefined) return null;
  return me.value === null ? html`<${Login} />` : html`<${Shell} />`;
}

function Shell() {
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const first = useRef(true);
  const { page, id } = route.value;
  const lists = page === 'sessions' || page === 'inbox';
  useEffect(() => (lists ? followChanges() : countPending()), [lists]);
  useEffect(() => {
    document.title = `${id || TITLES[page]} · Holdfast`;
    if (first.current) first.current = false;
    else main.current?.focus();
  }, [page, id]);
  return html`
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => { e.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${to('/')}><img src=${`${to('/static/icon.svg')}`} alt="" width="22" height="22" />Holdfast</a>
      <nav aria-label="Pages">
        <${Tab} page="sessions" href=${to('/')}>Sessions<//>
        <${Tab} page="inbox" href=${to('/inbox')}>Inbox <${Badge} /><//>
        <${Tab} page="store" href=${to('/store')}>Store<//>
      </nav>
      <div class="who">
        ${offline.value && html`<span class="pill warn" role="status">Reconnecting…</span>`}
        <${Help} /><${Theme} />
        <span class="principal" title=${`tenant ${me.value?.tenant}`}>${me.value?.principal}</span>
        ${document.documentElement.dataset.auth !== 'none' && html`<button class="quiet" onClick=${logout}>Log out</button>`}
      </div>
    </header>
    <main id="main" ref=${main} tabindex="-1"><${PAGES[page]} key=${page + id} id=${id} /></main>`;
}

/** @param {{page: string, href: string, children: any}} props */
function Tab({ page, href, children }) {
  const shown = route.value.page;
  const here = shown === page || (page === 'sessions' && shown === 'session');
  return html`<a href=${href} aria-current=${here ? 'page' : null}>${children}</a>`;
}

function Badge() {
  const { items, more } = waiting.value ?? { items: 0 };
  return items > 0 && html`<span class="badge" aria-label="${items} pending">${items}${more && '+'}</span>`;
}

followLinks();
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('app')));
