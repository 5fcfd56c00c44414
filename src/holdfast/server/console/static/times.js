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
