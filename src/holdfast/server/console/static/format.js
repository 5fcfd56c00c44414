// @ts-check
/** Times, durations, numbers and costs, in the language and zone of the browser. */
import { useState } from 'preact/hooks';
import { html } from './html.js';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const NONE = '–';

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const recent = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const old = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: 'numeric' });
const exact = new Intl.DateTimeFormat(undefined, {
  dateStyle: 'full', timeStyle: 'long', hourCycle: 'h23',
});
const numbers = new Intl.NumberFormat();

/** A time, as short as its distance allows. @param {number | null | undefined} ms since 1970 */
export function time(ms) {
  if (ms == null) return NONE;
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return NONE;
  const now = new Date();
  if (date.toDateString() === now.toDateString()) return clock.format(date);
  return (date.getFullYear() === now.getFullYear() ? recent : old).format(date);
}

/** A duration in its two largest units. @param {number | null | undefined} ms @returns {string} */
export function duration(ms) {
  if (ms == null || !Number.isFinite(ms)) return NONE;
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${(ms / SECOND).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.round(ms / SECOND)} s`;
  if (ms < HOUR) return two(ms, MINUTE, 'min', SECOND, 's');
  if (ms < DAY) return two(ms, HOUR, 'h', MINUTE, 'min');
  return two(ms, DAY, 'd', HOUR, 'h');
}

/** @param {number} ms @param {number} large @param {string} first @param {number} small @param {string} second */
function two(ms, large, first, small, second) {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${first}${rest ? ` ${rest} ${second}` : ''}`;
}

/** @param {number | null | undefined} n */
export const count = (n) => (n == null ? NONE : numbers.format(n));

/** A cost in dollars. @param {number | null | undefined} x */
export function cost(x) {
  if (x == null) return NONE;
  return `$${x === 0 || x >= 1 ? x.toFixed(2) : x >= 0.0001 ? x.toFixed(4) : x.toExponential(1)}`;
}

/** What a thread is called that has no title. @param {string} name */
export const threadName = (name) => (name === 'main' ? 'main' : name.startsWith('sub/') ? 'sub-agent' : `fork ${name.slice(-6)}`);

/** A time in the local zone, with the exact time on hover. @param {{at: number | null | undefined}} props `at` in ms */
export function Time({ at }) {
  const date = at == null ? null : new Date(at);
  if (!date || Number.isNaN(date.getTime())) return html`<span>${NONE}</span>`;
  return html`<time dateTime=${date.toISOString()} title="${exact.format(date)} (${date.toISOString()})">${time(at)}</time>`;
}

/** A button that copies a text. @param {{text: string | (() => string), label?: string}} props */
export function Copy({ text, label = 'Copy' }) {
  const [said, setSaid] = useState('');
  const copy = async () => {
    setSaid((await copied(typeof text === 'function' ? text() : text)) ? 'Copied' : 'Not copied');
    setTimeout(() => setSaid(''), 1_500);
  };
  return html`<button class="quiet small copy" onClick=${copy} title=${label}><span aria-live="polite">${said || 'Copy'}</span>${label !== 'Copy' && html`<span class="unseen"> ${label}</span>`}</button>`;
}

/** @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text); // without TLS, browsers have no clipboard
  }
}

/** @param {string} text */
function copiedBySelection(text) {
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'unseen';
  const before = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  if (before instanceof HTMLElement) before.focus();
  return done;
}
