// @ts-check
/** One session, in tabs. */
import { useEffect, useState } from 'preact/hooks';
import { cls, html } from './html.js';
import { route, toSession } from './router.js';

const TABS = { conversation: 'Conversation', timeline: 'Timeline', operations: 'Operations' };

/** @param {{id: string}} props */
export function Session({ id }) {
  const thread = route.value.query.get('thread') ?? 'main';
  const tab = route.value.query.get('tab') ?? 'conversation';
  return html`<section class="session">
    <h1 tabindex="-1">${id}</h1>
    <nav class="tabs" aria-label="Parts of the session">
      ${Object.entries(TABS).map(([name, title]) => html`<a href=${toSession(id, { thread, tab: name === 'conversation' ? null : name })}
        aria-current=${name === tab ? 'page' : null} class=${cls('tab', name)}>${title}</a>`)}
    </nav>
    ${tab === 'operations' && html`<${Operations} session=${id} />`}
  </section>`;
}

/** @param {{session: string}} props */
function Operations(props) {
  const [shown, setShown] = useState(/** @type {any} */ (null));
  useEffect(() => {
    import('./operations.js').then((module) => setShown(() => module.Operations));
  }, []);
  return shown && html`<${shown} ...${props} />`;
}
