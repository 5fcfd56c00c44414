// @ts-check
/** The scrub bar: the session as of any event. The arrow keys step, and a fork begins there. */
import { useEffect, useState } from 'preact/hooks';
import { ApiError, may, send, sessionPath } from './api.js';
import { failed, summary } from './events.js';
import { Time, count } from './format.js';
import { html } from './html.js';
import { amend, navigate, route, toSession } from './router.js';

const LEAP = 10; // events that Shift and an arrow key move by
const AROUND = 5; // events that are read on either side

/** @param {{live: import('./live.js').Live, past: import('./live.js').Past, events: import('./events.js').Events, at: number | null, served: boolean}} props */
export function Scrub({ live, past, events, at, served }) {
  const head = live.head.value;
  const now = Math.min(at ?? head, head);
  const go = (/** @type {number | null} */ next) => amend({ at: next == null || next > live.head.peek() ? null : Math.max(1, next) }, { replace: true });
  useKeys(live, go);
  useEffect(() => events.need(now - AROUND, now + AROUND), [now]);
  events.version.value; // a page of events has come
  const event = events.get(now);
  return html`<footer class="scrub" aria-label="Time travel">
    <button class="icon" onClick=${() => go(now - 1)} disabled=${now <= 1} aria-label="One event back" title="One event back (←)">◀</button>
    <input type="range" min="1" max=${head} value=${now} aria-label="Event" aria-valuetext="Event ${now} of ${head}"
      onInput=${(/** @type {any} */ e) => go(Number(e.target.value))} />
    <button class="icon" onClick=${() => go(now + 1)} disabled=${at == null} aria-label="One event forward" title="One event forward (→)">▶</button>
    <span class="place"><span class="mono">${count(now)} / ${count(head)}</span>
      ${event && html`<span class=${failed(event) ? 'problem' : ''}>${event.kind}</span> <span class="muted cut">${summary(event, events.tools)}</span> <span class="muted"><${Time} at=${event.at} /></span>`}</span>
    ${past.problem.value && at != null && html`<span class="problem" role="alert">${past.problem.value}</span>`}
    ${served && may('sessions:write') && html`<${Fork} live=${live} at=${at == null ? null : now} />`}
    ${at == null ? html`<span class="pill live"><i class="dot"></i>live</span>` : html`<button class="primary" onClick=${() => go(null)} title="Back to live (Esc)">Back to live</button>`}
  </footer>`;
}

/** @param {import('./live.js').Live} live @param {(next: number | null) => void} go */
function useKeys(live, go) {
  useEffect(() => {
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      const { target, key } = event;
      if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented) return;
      if (target instanceof HTMLElement && target.closest('input, textarea, select, [contenteditable], dialog')) return;
      const at = route.peek().query.get('at'); // keys may come faster than frames
      const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (by && (at || by < 0)) go((Number(at) || live.head.peek()) + by * (event.shiftKey ? LEAP : 1));
      else if (key === 'Escape' && at) go(null);
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, [live]);
}

/** @param {{live: import('./live.js').Live, at: number | null}} props */
function Fork({ live, at }) {
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  useEffect(() => setProblem(null), [at]);
  const { id, thread } = live;
  const fork = async (/** @type {number | null} */ place) => {
    try {
      const made = await send('POST', sessionPath(id, 'threads', 'fork'), place == null ? {} : { at: place }, { thread });
      navigate(toSession(id, { thread: made.thread }));
    } catch (error) {
      setProblem(error);
    }
  };
  const nearest = problem instanceof ApiError && problem.code === 'unsafe_point' ? problem.fields.nearest : null;
  if (nearest) return html`<span class="muted small">A fork cannot begin inside a turn.</span>
    <button onClick=${() => fork(nearest)}>Fork at event ${nearest}</button>`;
  return html`${problem && html`<span class="problem" role="alert">${problem.message}</span>`}
    <button onClick=${() => fork(at)} title="Begin a thread that shares all events up to here">Fork from here</button>`;
}
