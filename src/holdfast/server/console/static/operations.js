// @ts-check
/** What operators need of a session: who drives it, its queue, usage, integrity and audit, a copy to
 * download, and its deletion. And the page of the store. */
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { address, get, may, me, send, sessionPath } from './api.js';
import { PROBED } from './events.js';
import { Copy, Time, cost, count, duration } from './format.js';
import { cls, html } from './html.js';
import { navigate, to, toSession } from './router.js';
import { Text, asText, visible } from './text.js';

const REFRESH = 5_000; // ms between two looks at the lease and the queue

/** Something that is read, and read again. @param {() => Promise<any>} load @param {any[]} inputs @param {number} [every] */
function useRead(load, inputs, every = 0) {
  const [value, setValue] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState('');
  const again = () => load().then((found) => (setValue(found), setProblem('')), (error) => setProblem(error.message));
  useEffect(() => {
    again();
    const timer = every ? setInterval(() => document.hidden || again(), every) : 0;
    return () => clearInterval(timer);
  }, inputs);
  return { value, problem, again };
}

/** @param {{title: string, children: any, name: string}} props */
const Part = ({ title, children, name }) => html`<section class="part ${name}" aria-label=${title}><h2>${title}</h2>${children}</section>`;
/** @param {{text: string}} props */
const Problem = ({ text }) => text && html`<p class="problem" role="alert">${text}</p>`;

/** @param {{tenant?: string, id?: string, session?: string, thread?: string, state?: any}} props */
export function Operations({ id, session, thread = 'main', state }) {
  const one = { id: id ?? session ?? '', thread };
  return html`<div class="operations"><${Driver} ...${one} run=${state?.display.value?.state?.run} /><${Queue} ...${one} /><${Usage} ...${one} /><${Verify} ...${one} />
    <${Audit} ...${one} /><${Download} ...${one} /><${Delete} ...${one} /></div>`;
}

/** @typedef {{id: string, thread: string}} Place */

/** What the latest run has used, and its limits. @param {any} run  of the state */
function spent({ steps = 0, tokens = 0, cost: dollars = 0, crashes = 0, limits = {} }) {
  const used = [`${count(steps)} ${steps === 1 ? 'step' : 'steps'}`, `${count(tokens)} tokens`, dollars && cost(dollars), crashes && `${count(crashes)} lost processes since the last step`];
  const most = Object.entries(limits).map(([name, n]) => `${name} ${n}`);
  return `${used.filter(Boolean).join(', ')}${most.length ? `; limits: ${most.join(', ')}` : '; no limits of its own'}`;
}

/** @param {Place & {run?: any}} props */
function Driver({ id, thread, run }) {
  const { value, problem, again } = useRead(async () => {
    const [lease, status, { row }, runs] = await Promise.all([get(sessionPath(id, 'lease'), { thread }), get(sessionPath(id, 'status'), { thread }), get(sessionPath(id), { thread }),
      get(sessionPath(id, 'events'), { thread, kind: 'run.finished', reverse: true, limit: 5 })]);
    return { lease, status, row, runs: runs.items };
  }, [id, thread], REFRESH);
  const [wrong, setWrong] = useState('');
  if (!value) return html`<${Part} title="Driver" name="driver"><${Problem} text=${problem} /><//>`;
  const { lease, status, row, runs } = value;
  const abort = () => send('POST', sessionPath(id, 'abort'), { reason: 'stopped in the console' }, { thread }).then(again, (error) => setWrong(error.message));
  return html`<${Part} title="Driver" name="driver"><${Problem} text=${wrong || problem} />
    <dl><dt>Process</dt><dd>${lease.owner ? html`<${Text} value=${lease.owner} limit=${120} />, since <${Time} at=${lease.since} />, until <${Time} at=${lease.until} /> unless renewed` : 'none: nothing runs'}</dd>
      <dt>Phase</dt><dd>${status.phase}${row.changed && html` <span class="muted">for ${duration(Date.now() - row.changed)}</span>`}</dd>
      <dt>Model</dt><dd>${status.model ?? '–'}, mode ${status.mode || '–'}</dd>
      ${run && html`<dt>Run</dt><dd>${spent(run)}</dd>`}
      <dt>Next timer</dt><dd>${row.wake ? html`<${Time} at=${row.wake} />` : 'none'}</dd>
      <dt>Log</dt><dd>${count(row.head)} events, ${count(row.bytes ?? 0)} bytes, begun <${Time} at=${row.created} />, last active <${Time} at=${row.last} /></dd>
      ${runs.length > 0 && html`<dt>Last runs</dt><dd>${runs.map((/** @type {any} */ event) => html`<div><${Time} at=${event.at} /> ${asText(event.data?.status)}
        ${event.data?.error && html` <${Text} value=${event.data.error} limit=${300} />`}</div>`)}</dd>`}</dl>
    ${may('sessions:write') && status.run && ['running', 'waiting'].includes(row.run) && html`<button class="danger" onClick=${abort}>Abort the run</button>`}<//>`;
}

/** @param {Place} props */
function Queue({ id, thread }) {
  const { value, again } = useRead(() => get(sessionPath(id, 'follow-ups'), { thread }), [id, thread], REFRESH);
  if (!value?.items.length) return null;
  const remove = (/** @type {number} */ seq) => send('DELETE', sessionPath(id, 'follow-ups', seq), undefined, { thread }).then(again, again);
  return html`<${Part} title="Queue" name="queue"><ol>${value.items.map((/** @type {any} */ one) => html`<li key=${one.seq}><${Text} value=${one.text} limit=${200} />
    <span class="small muted"> ${one.how}</span> ${may('sessions:write') && html`<button class="small" onClick=${() => remove(one.seq)}>Remove</button>`}</li>`)}</ol><//>`;
}

/** @param {Place} props */
function Usage({ id }) {
  const { value, problem } = useRead(() => get(sessionPath(id, 'usage-table')), [id]);
  const rows = value?.items ?? [];
  const sum = (/** @type {string} */ name) => rows.reduce((/** @type {number} */ all, /** @type {any} */ one) => all + (one.usage[name] ?? 0), 0);
  const priced = rows.some((/** @type {any} */ one) => one.usage.cost != null);
  return html`<${Part} title="Usage" name="usage"><${Problem} text=${problem} />${rows.length ? html`<div class="scroll" tabindex="0"><table>
    <thead><tr><th>Model</th><th>Run</th><th class="right">Input</th><th class="right">Output</th><th class="right">Cost</th></tr></thead>
    <tbody>${rows.slice(-200).map((/** @type {any} */ one) => html`<tr><td>${one.model}</td><td class="mono small">${one.thread === 'main' ? '' : `${one.thread} `}${one.run.slice(-8)}</td>
      <td class="right">${count(one.usage.input_tokens ?? 0)}</td><td class="right">${count(one.usage.output_tokens ?? 0)}</td><td class="right">${cost(one.usage.cost)}</td></tr>`)}</tbody>
    <tfoot><tr><th colspan="2">All</th><td class="right">${count(sum('input_tokens'))}</td><td class="right">${count(sum('output_tokens'))}</td><td class="right">${cost(priced ? sum('cost') : null)}</td></tr></tfoot></table></div>`
    : html`<p class="muted">No model was called yet.</p>`}<//>`;
}

/** @param {Place} props */
function Verify({ id }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState('');
  const check = () => {
    setBusy(true);
    get(sessionPath(id, 'verify')).then(setFound, (error) => setProblem(error.message)).finally(() => setBusy(false));
  };
  return html`<${Part} title="Integrity" name="verify"><${Problem} text=${problem} />
    ${found ? html`<p role="status"><span class=${cls('pill', found.ok ? 'good' : 'bad')}>${found.ok ? 'verified' : `${count(found.problems)} problems`}</span>
      ${found.ok ? ` Every hash and link is right up to event ${count(found.head)}.` : ''} <span class="small muted">checked by ${visible(found.by ?? '')}, <${Time} at=${found.at} /></span></p>
      ${found.link && html`<p class="small mono cut" title=${found.link}>${found.link} <${Copy} text=${found.link} label="Copy the link of the last event" /></p>`}
      ${found.unlinked > 0 && html`<p class="small muted">${count(found.unlinked)} events are older than links; their hashes are right.</p>`}
      <ul>${found.damage.map((/** @type {any} */ one) => html`<li class="problem">${one.problem}${one.thread && `, thread ${one.thread}`}${one.seq && `, event ${one.seq}`}</li>`)}</ul>`
      : html`<p class="muted">The check recomputes the hash of each event and its link to the one before.</p>`}
    <button disabled=${busy} onClick=${check}>${busy ? 'Checking…' : found ? 'Check again' : 'Check now'}</button><//>`;
}

/** Who decided what, when and from where. @param {Place} props */
function Audit({ id, thread }) {
  const [after, setAfter] = useState(0);
  const { value, problem } = useRead(() => get(sessionPath(id, 'audit'), { thread, after, limit: 50 }), [id, thread, after]);
  const rows = value?.items ?? [];
  return html`<${Part} title="Audit" name="audit"><${Problem} text=${problem} />
    ${rows.length ? html`<div class="scroll" tabindex="0"><table><thead><tr><th>Proposed</th><th>Call</th><th>Asked by</th><th>Decided</th><th>Ended</th></tr></thead><tbody>${rows.map((/** @type {any} */ one) => html`<tr key=${one.seq}>
      <td><a href=${toSession(id, { thread, at: one.seq })}><${Time} at=${one.proposed} /></a></td>
      <td><strong>${visible(one.tool ?? '')}</strong> <${Text} class="mono small" value=${JSON.stringify(one.changed ?? one.arguments ?? {})} limit=${160} />${one.changed != null && html` <span class="pill warn">changed</span>`}</td>
      <td>${visible((one.asked ?? []).map((/** @type {any} */ who) => who ?? '–').join(', '))}</td>
      <td>${(one.decisions ?? []).map((/** @type {any} */ made) => html`<div>${made.outcome} by <${Text} value=${made.by ?? '–'} limit=${80} />, <${Time} at=${made.at} />${made.channel && ` over ${made.channel}`}${made.reason && html`: <${Text} value=${made.reason} limit=${200} />`}</div>`)}
        ${!one.decisions?.length && (one.allowed_by ?? '')}${(one.probes ?? []).map((/** @type {any} */ made) => html`<div>probe: ${PROBED[made.outcome] ?? made.outcome}, <${Time} at=${made.at} />${made.reason && html`: <${Text} value=${made.reason} limit=${200} />`}</div>`)}</td>
      <td>${one.outcome ?? '–'}${one.ended && html` <span class="small muted"><${Time} at=${one.ended} /></span>`}</td></tr>`)}</tbody></table></div>`
      : html`<p class="muted">No tool was called${after ? ' after these' : ' yet'}.</p>`}
    <div class="row">${after > 0 && html`<button class="small" onClick=${() => setAfter(0)}>First</button>`}${value?.after && html`<button class="small" onClick=${() => setAfter(value.after)}>Next</button>`}</div><//>`;
}

/** @param {Place} props */
function Download({ id }) {
  const [totals, setTotals] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState('');
  if (!may('bundles')) return null;
  const look = () => get(sessionPath(id, 'bundle'), { form: 'json' }).then((bundle) => setTotals(bundle.redaction?.totals ?? bundle.document?.redaction?.totals ?? {}), (error) => setProblem(error.message));
  return html`<${Part} title="Download" name="download"><${Problem} text=${problem} />
    <p class="muted">A bundle has the whole session. Secrets, credentials and local paths are removed from it.</p>
    ${totals && (Object.keys(totals).length ? html`<dl class="removed">${Object.entries(totals).map(([name, n]) => html`<dt>${name}</dt><dd>${asText(n)}</dd>`)}</dl>` : html`<p role="status">Nothing had to be removed.</p>`)}
    <div class="row"><a class="button" href=${address(sessionPath(id, 'bundle'))} download="${id}.zip">Download the bundle</a>
      <button class="quiet" onClick=${look}>Show what is removed</button></div><//>`;
}

/** @param {Place} props */
function Delete({ id }) {
  const [typed, setTyped] = useState('');
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  if (!may('sessions:write')) return null;
  const remove = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (typed !== id || busy) return;
    setBusy(true);
    send('DELETE', sessionPath(id)).then((receipt) => showReceipt(id, receipt), (error) => (setProblem(error.message), setBusy(false)));
  };
  return html`<${Part} title="Delete" name="delete"><${Problem} text=${problem} />
    <form onSubmit=${remove}><label><span class="muted">To delete this session for good, type its id.</span>
      <input value=${typed} autocomplete="off" onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /></label>
      <button class="danger" disabled=${typed !== id || busy}>Delete the session</button></form><//>`;
}

/** The receipt stays on the screen although the page of the session ends. @param {string} id @param {any} receipt */
function showReceipt(id, receipt) {
  const host = document.body.appendChild(document.createElement('div'));
  const close = () => {
    render(null, host);
    host.remove();
  };
  navigate(to('/'));
  render(html`<${Receipt} id=${id} receipt=${receipt} close=${close} />`, host);
}

/** @param {{id: string, receipt: any, close: () => void}} props */
function Receipt({ id, receipt, close }) {
  const dialog = useRef(/** @type {any} */ (null));
  useEffect(() => dialog.current.showModal(), []);
  const remains = receipt.remains ?? [];
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="receipt"><h2 id="receipt">Session deleted</h2>
    <p class="mono">${id}</p><dl>${Object.entries(receipt.removed ?? {}).map(([name, n]) => html`<dt>${name}</dt><dd>${asText(n)}</dd>`)}</dl>
    ${remains.length ? html`<h3>This remains</h3><ul>${remains.map((/** @type {any} */ one) => html`<li><strong>${one.where}</strong>: ${one.what} ${one.remedy}</li>`)}</ul>` : html`<p>Nothing remains.</p>`}
    <div class="row"><${Copy} text=${JSON.stringify({ session: id, ...receipt }, null, 2)} label="Copy the receipt" /><span class="grow"></span><button class="primary" onClick=${() => dialog.current.close()}>Close</button></div></dialog>`;
}

/** The store and the server. */
export function Store() {
  const { value, problem } = useRead(async () => {
    const [health, ready] = await Promise.all([get('/health'), get('/ready').catch((error) => ({ ready: false, parts: { server: error.message } }))]);
    return { health, ready };
  }, [], REFRESH);
  const who = me.value;
  return html`<section class="store"><h1 tabindex="-1">Store and server</h1><${Problem} text=${problem} />
    ${value && html`<div class="operations"><${Part} title="Health" name="health"><p role="status"><span class=${cls('pill', value.ready.ready ? 'good' : 'bad')}>${value.ready.ready ? 'ready' : 'not ready'}</span></p>
      <dl>${Object.entries(value.ready.parts ?? {}).map(([name, state]) => html`<dt>${name}</dt><dd>${asText(state)}</dd>`)}<dt>version</dt><dd>${value.health.version}</dd></dl><//>
    <${Part} title="What it has" name="has"><dl><dt>Agents</dt><dd>${who?.agents.join(', ') || 'none: this server reads and decides'}</dd><dt>Stores</dt><dd>${who?.stores.join(', ')}</dd></dl><//>
    <${Part} title="You" name="you"><dl><dt>Name</dt><dd>${who?.principal}</dd><dt>Tenant</dt><dd>${who?.tenant}</dd><dt>Scopes</dt><dd>${who?.scopes.join(', ')}</dd></dl><//></div>`}</section>`;
}
