// @ts-check
/** How a run stands, in one word and one colour. */
import { html } from './html.js';

const TONES = /** @type {Record<string, string>} */ ({ running: 'live', waiting: 'warn', done: 'good', failed: 'bad', aborted: '',
  interrupted: 'bad', denied: 'bad', cancelled: '', unknown: 'warn', ok: 'good', proposed: '', expired: '', sealed: '' });

/** @param {{run?: string | null, phase?: string | null}} props */
export function Status({ run, phase }) {
  const word = phase && phase !== 'active' && phase !== 'created' ? phase : run || 'new';
  return html`<span class="pill status ${TONES[word] ?? ''}" data-status=${word}><i class="dot"></i>${word}</span>`;
}
