// @ts-check
/** The list of sessions. */
import { html } from './html.js';

export const Sessions = () => html`<h1 tabindex="-1">Sessions</h1>`;
