// @ts-check
/** The sheet of keys, shown with `?`. */
import { useEffect, useRef } from 'preact/hooks';
import { html } from './html.js';

const KEYS = {
  Everywhere: { '?': 'show or close this sheet', Tab: 'go to the next control', Esc: 'leave a field or a dialog' },
  Sessions: { '/': 'search', 'j ↓ / k ↑': 'go to the next row or the one before', Enter: 'open it' },
  Inbox: {
    'j ↓ / k ↑': 'choose the next or the one before', Enter: 'go to the controls of the item', a: 'approve, or answer', e: 'edit the arguments, then approve',
    d: 'deny, with a reason', 'y n r': 'an unknown outcome: it happened, it did not, run it again', c: 'choose an option of a question (arrows, then a)', o: 'open the session',
  },
  Session: { '← →': 'one event back or forth', 'Shift ← →': 'ten events', Esc: 'back to live', 'Home End': 'on the scrub bar: the first event, or live' },
};

/** A button, and the dialog that it or `?` opens. */
export function Help() {
  const dialog = useRef(/** @type {any} */ (null));
  const toggle = () => (dialog.current.open ? dialog.current.close() : dialog.current.showModal());
  useEffect(() => {
    const typed = (/** @type {KeyboardEvent} */ event) => {
      const field = event.target instanceof Element && event.target.closest('textarea, select, input:not([type="radio"], [type="checkbox"], [type="range"])');
      if (event.key !== '?' || field || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      toggle();
    };
    addEventListener('keydown', typed);
    return () => removeEventListener('keydown', typed);
  }, []);
  return html`<button class="quiet icon" onClick=${toggle} title="Keys (?)" aria-label="Keys">?</button>
    <dialog ref=${dialog} class="help" aria-labelledby="keys"><h2 id="keys">Keys</h2>
      ${Object.entries(KEYS).map(([place, keys]) => html`<h3>${place}</h3><dl>${Object.entries(keys).map(([key, text]) => html`<dt>${key.split(' ').map((one, n) => (n && one === '/' ? ' / ' : html`<kbd>${one}</kbd> `))}</dt><dd>${text}</dd>`)}</dl>`)}
      <div class="row"><span class="grow"></span><button class="primary" onClick=${toggle}>Close</button></div></dialog>`;
}
