// @ts-check
/** The login. What is asked for depends on how the server authenticates. */
import { useState } from 'preact/hooks';
import { html } from './html.js';
import { ApiError, login } from './api.js';
import { to } from './router.js';

const ASKS = {
  keys: ['API key', html`Create one with <code>holdfast keys create NAME</code>. Its scopes decide what you see and may do.`],
  local: ['Token', html`Run <code>holdfast token --url</code> where the server runs, and open the address that it prints.`],
  secret: ['Secret', html`The secret that clients of this server send as bearer token.`],
  custom: ['Token', html`The token that clients of this server send as bearer token.`],
};

export function Login() {
  const [credential, setCredential] = useState('');
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const [label, hint] = ASKS[/** @type {keyof typeof ASKS} */ (document.documentElement.dataset.auth)] ?? ASKS.custom;
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await login(credential.trim());
    } catch (error) {
      const wrong = error instanceof ApiError && error.status === 401;
      setProblem(wrong ? `This ${String(label).toLowerCase()} is not valid.` : String(/** @type {Error} */ (error).message));
      setBusy(false);
    }
  };
  return html`<main class="login">
    <form onSubmit=${submit}>
      <img src=${to('/static/icon.svg')} alt="" width="44" height="44" />
      <h1>Log in to Holdfast</h1>
      <label for="credential">${label}</label>
      <input id="credential" type="password" autocomplete="off" autofocus required spellcheck=${false}
        aria-describedby="hint problem" value=${credential}
        onInput=${(/** @type {any} */ event) => setCredential(event.target.value)} />
      <p id="hint" class="hint">${hint}</p>
      <p id="problem" class="problem" role="alert">${problem}</p>
      <button class="primary" disabled=${busy}>Log in</button>
    </form>
  </main>`;
}
