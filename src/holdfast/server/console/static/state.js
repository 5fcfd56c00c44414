// @ts-check
/** The state of a thread, now or as of an event: what the server folded from the log. */
import { count } from './format.js';
import { html } from './html.js';
import { Status } from './status.js';
import { Text, visible } from './text.js';

const FACTS = { phase: 'Phase', mode: 'Mode', model: 'Model', run: 'Run', queued: 'Queued messages', head: 'Event' };

/** @param {{display: any}} props */
export function State({ display }) {
  const { tools = {}, usage = {}, tasks = [], pending = {}, files = {}, state = {}, subagents = {} } = display;
  const facts = Object.entries(FACTS).filter(([name]) => display[name] != null && display[name] !== '');
  return html`<div class="state">
    <dl class="facts">${facts.map(([name, title]) => html`<dt>${title}</dt><dd class=${name === 'run' ? 'mono small' : ''}>${String(display[name])}</dd>`)}
      ${Object.entries(usage).map(([name, n]) => html`<dt>${name.replaceAll('_', ' ')}</dt><dd>${typeof n === 'number' ? count(n) : String(n)}</dd>`)}</dl>
    <${Part} title="Tool calls of the run" entries=${Object.entries(tools)} show=${(/** @type {any} */ one) => html`<${Status} run=${one.status} /> <code>${visible(one.name ?? '')}</code>`} />
    <${Part} title="Pending" entries=${Object.entries(pending)} show=${(/** @type {any} */ one) => html`<span class="pill warn">${one.what}</span> <${Text} value=${one.title ?? ''} limit=${300} />`} />
    <${Part} title="Sub-agents" entries=${Object.entries(subagents)} show=${(/** @type {any} */ one) => html`<${Status} run=${one.status} /> ${one.agent}`} />
    <${Part} title="Tasks" entries=${Object.entries(tasks)} show=${(/** @type {any} */ one) => html`<span class="pill">${one.status}</span> <${Text} value=${one.content} limit=${300} />`} />
    <${Part} title="Files" entries=${Object.entries(files)} show=${(/** @type {any} */ one, /** @type {string} */ name) => html`<code>${name}</code> <span class="muted">${(one.operations ?? []).join(', ')}</span>`} />
    ${state.user && html`<h3>User state</h3><pre class="value"><${Text} value=${state.user} /></pre>`}
    <details><summary>All of it</summary><pre class="value"><${Text} value=${display} /></pre></details>
  </div>`;
}

/** @param {{title: string, entries: [string, any][], show: (one: any, name: string) => any}} props */
const Part = ({ title, entries, show }) => (entries.length ? html`<h3>${title}</h3><ul class="plain">${entries.map(([name, one]) => html`<li>${show(one, name)}</li>`)}</ul>` : null);
