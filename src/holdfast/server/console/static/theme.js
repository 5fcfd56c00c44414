// @ts-check
/** Light, dark, or as the system has it. The choice is kept in the browser. */
import { effect, signal } from '@preact/signals';
import { html } from './html.js';

const NAME = 'holdfast-theme';
const NEXT = { auto: 'light', light: 'dark', dark: 'auto' };
const GLYPH = { auto: '◐', light: '☀', dark: '☾' };
const theme = signal(/** @type {keyof typeof NEXT} */ (known()));

function known() {
  try {
    const name = localStorage.getItem(NAME) ?? 'auto';
    return name in NEXT ? name : 'auto';
  } catch {
    return 'auto'; // storage is disabled
  }
}

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  try {
    localStorage.setItem(NAME, theme.value);
  } catch {
    // It is chosen again next time.
  }
});

export function Theme() {
  const change = () => (theme.value = /** @type {keyof typeof NEXT} */ (NEXT[theme.value]));
  return html`<button class="quiet icon" onClick=${change} title="Theme: ${theme.value}"
    aria-label="Theme: ${theme.value}. Change it">${GLYPH[theme.value]}</button>`;
}
