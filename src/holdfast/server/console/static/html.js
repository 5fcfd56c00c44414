// @ts-check
/** Templates: `html` makes virtual DOM nodes of Preact. Texts in them are always text, never HTML. */
import htm from 'htm';
import { h } from 'preact';

export const html = htm.bind(h);

/** @param {...(string | false | null | undefined)} names */
export const cls = (...names) => names.filter(Boolean).join(' ');
