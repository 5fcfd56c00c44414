// @ts-check
/** Times and numbers as text. */
import { html } from './html.js';

const MINUTE = 60_000;
const STEPS = /** @type {[number, number, string][]} */ ([[MINUTE, 1_000, 's'], [60 * MINUTE, MINUTE, 'min'], [24 * 60 * MINUTE, 60 * MINUTE, 'h'], [30 * 24 * 60 * MINUTE, 24 * 60 * MINUTE, 'd']]);

/** @param {number} ms */
export function ago(ms) {
  const passed = Date.now() - ms;
  if (passed < 5_000) return 'now';
  for (const [below, unit, name] of STEPS) if (passed < below) return `${Math.floor(passed / unit)} ${name}`;
  return new Date(ms).toLocaleDateString();
}

/** @param {{at: number, relative?: boolean}} props */
export function Time({ at, relative = true }) {
  const date = new Date(at);
  return html`<time datetime=${date.toISOString()} title=${date.toLocaleString()}>${relative ? ago(at) : date.toLocaleTimeString()}</time>`;
}

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 60 * MINUTE) return `${Math.floor(ms / MINUTE)} min ${Math.round((ms % MINUTE) / 1_000)} s`;
  if (ms < 48 * 60 * MINUTE) return `${Math.floor(ms / 60 / MINUTE)} h ${Math.round((ms / MINUTE) % 60)} min`;
  return `${Math.floor(ms / 24 / 60 / MINUTE)} days`;
}

/** @param {number} n */
export const count = (n) => n.toLocaleString();

/** A cost in dollars. @param {number} x */
export const cost = (x) => `$${x.toFixed(4)}`;

/** @param {{text: string, label?: string}} props */
export const Copy = ({ text, label = 'Copy' }) => html`<button class="quiet small copy" aria-label=${label} onClick=${() => navigator.clipboard?.writeText(text)}>Copy</button>`;

/** @param {{value: unknown, limit?: number}} props */
export function Text({ value, limit = 4_000 }) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2) ?? '';
  return html`<bdi class="text">${text.slice(0, limit)}</bdi>`;
}

/** @param {string} text */
export const markdown = (text) => html`<${Text} value=${text} limit=${20_000} />`;

/** @param {{item: any, session: string}} props */
export const Pending = ({ item }) => html`<p class="card"><strong>${item.title}</strong> waits for a decision.</p>`;
