// @ts-check
/** The feed of changes to lists: sessions with new activity, and how many items are pending. */
import { signal } from '@preact/signals';
import { follow, get } from './api.js';

const COUNTED = 5_000; // ms between two counts

/** How many items are pending; null if unknown. With `more`, at least so many.
 * @type {import('@preact/signals').Signal<{items: number, more?: boolean} | null>} */
export const waiting = signal(null);

/** @type {Set<(row: any) => void>} */
const rowListeners = new Set();
/** @type {Set<() => void>} */
const inboxListeners = new Set();

/** Be called with each session that has new activity, and with null when the list must be read
 * again. Returns how to stop. @param {(row: any) => void} listener @returns {() => void} */
export function onRow(listener) {
  rowListeners.add(listener);
  return () => void rowListeners.delete(listener);
}

/** Be called when the pending items have changed. @param {() => void} listener @returns {() => void} */
export function onInbox(listener) {
  inboxListeners.add(listener);
  return () => void inboxListeners.delete(listener);
}

async function count() {
  const page = await get('/pending', { limit: 100 }).catch(() => null);
  if (page) waiting.value = { items: page.items.length, more: page.cursor != null };
}

/** Count the pending items again and again, until the returned function is called. Browsers allow six
 * connections to a server for all their windows, so a page without a list does not follow the feed. */
export function countPending() {
  count();
  const timer = setInterval(() => document.hidden || count(), COUNTED);
  return () => clearInterval(timer);
}

/** Follow the feed until the returned function is called. */
export function followChanges() {
  let known = false;
  const again = () => {
    count();
    rowListeners.forEach((tell) => tell(null));
    inboxListeners.forEach((tell) => tell());
  };
  return follow('/changes', {}, {
    caught_up: () => {
      if (known) again();
      else count();
      known = true;
    },
    row: (row) => rowListeners.forEach((tell) => tell(row)),
    pending: (data) => {
      waiting.value = data;
      inboxListeners.forEach((tell) => tell());
    },
    resync: again,
  });
}
