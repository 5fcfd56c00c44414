// @ts-check
/** Texts that came from a model, a tool or a user. They are shown as text: characters that hide or
 * reorder others are made visible, and long texts are cut. */
import { useState } from 'preact/hooks';
import { html } from './html.js';
import { count } from './format.js';
import { isLarge } from './json.js';

const STEP = 50_000; // characters that one click on "Show" adds at most
// Controls of direction, invisible characters (also of the tag block), and control characters.
const ODD = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu;

/** A text in which nothing is hidden or reordered. @param {string} text */
export const visible = (text) => text.replace(ODD, (one) => `⟨U+${(one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`);

/** Any value as text. @param {unknown} value @returns {string} */
export const asText = (value) => (typeof value === 'string' ? value : value == null ? '' : JSON.stringify(value, null, 2));

/** The first words of a value, on one line. @param {any} value */
export function brief(value) {
  if (value == null) return '';
  if (typeof value === 'string') return visible(value.slice(0, 160));
  if (typeof value !== 'object' || Array.isArray(value) || isLarge(value)) return visible(JSON.stringify(value).slice(0, 160));
  const parts = Object.entries(value).slice(0, 6).map(([name, one]) => `${name.slice(0, 60)}: ${String(JSON.stringify(one)).slice(0, 60)}`);
  return visible(parts.join(', '));
}

/** How much of a text is shown, and the button that shows more.
 * @param {string} whole @param {number} limit @returns {[string, any]} */
export function useCut(whole, limit) {
  const [shown, setShown] = useState(limit);
  const left = whole.length - shown;
  if (left <= 0) return [whole, null];
  const high = whole.charCodeAt(shown - 1);
  const end = high >= 0xd800 && high < 0xdc00 ? shown - 1 : shown; // no half of a pair
  const more = left > STEP ? `Show ${count(STEP)} more of ${count(left)} characters` : `Show all (${count(left)} more characters)`;
  return [whole.slice(0, end), html`<button class="small more" onClick=${() => setShown(shown + STEP)}>${more}</button>`];
}

/** A text, or a value as JSON, cut to `limit` characters.
 * @param {{value: unknown, limit?: number, class?: string}} props */
export function Text({ value, limit = 4_000, class: name = '' }) {
  const [part, more] = useCut(asText(value), limit);
  return html`<bdi class="text ${name}" dir="auto">${visible(part)}${more && html`<span class="muted">… </span>${more}`}</bdi>`;
}
