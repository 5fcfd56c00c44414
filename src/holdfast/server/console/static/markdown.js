// @ts-check
/** Markdown as nodes of an allow-list: paragraphs, headings, lists, code, tables, quotes, emphasis and
 * links. Everything else, HTML too, stays text. Images are links. Every pass over a text takes time
 * in proportion to its length, whatever it contains. */
import { useMemo } from 'preact/hooks';
import { html } from './html.js';
import { Copy } from './format.js';
import { useCut, visible } from './text.js';

const LIMIT = 20_000; // characters shown at first
const DEEP = 12; // lists and quotes in each other; deeper ones are text
const OPEN = 24; // emphasis that is open at once; more is text
const PROTOCOLS = ['http:', 'https:', 'mailto:'];

/** @param {string} text @returns {any} */
export const markdown = (text) => html`<${Markdown} text=${text} />`;

/** @param {{text: string}} props */
function Markdown({ text }) {
  const [part, more] = useCut(text, LIMIT);
  const nodes = useMemo(() => blocks(part.split(/\r\n|\n|\r/), 0), [part]);
  // Adding very many nodes to old ones takes Preact long, so a part that grew is drawn anew.
  const key = part.length > LIMIT ? part.length : 0;
  return html`<div class="markdown" dir="auto" key=${key}>${nodes}${more}</div>`;
}

// Blocks

const FENCE = /^ {0,3}(`{3,}|~{3,}(?!~))([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: {1,4}|\t|$)/;
const FIRST_ITEM = /^ {0,3}(?:[-*+]|1[.)])[ \t]/; // an item that may interrupt a paragraph
const DELIMITERS = /^[ \t|:-]+$/;

/** @param {string} line */
const isBlank = (line) => !line.trim();

/** @param {string} line */
function isRule(line) {
  const bare = line.replace(/[ \t]/g, '');
  return bare.length >= 3 && '-*_'.includes(bare[0]) && bare === bare[0].repeat(bare.length);
}

/** @param {string} line @param {string | undefined} next */
const isTable = (line, next) => next !== undefined && line.includes('|') && next.includes('-') && next.includes('|') && DELIMITERS.test(next);

/** @param {string} line */
const interrupts = (line) => isBlank(line) || FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || FIRST_ITEM.test(line) || isRule(line);

/** @param {string[]} lines @param {number} depth @returns {any[]} */
function blocks(lines, depth) {
  const found = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const read = isBlank(line) ? skip : FENCE.test(line) ? fence : HEADING.test(line) ? heading : isRule(line) ? rule
      : depth < DEEP && QUOTE.test(line) ? quote : depth < DEEP && ITEM.test(line) ? list
      : line.startsWith('    ') ? indented : isTable(line, lines[at + 1]) ? table : paragraph;
    const [node, end] = read(lines, at, depth);
    if (node) found.push(node);
    at = end;
  }
  return found;
}

/** @typedef {(lines: string[], at: number, depth: number) => [any, number]} Reader  reads a block, and returns where the next begins */

/** @type {Reader} */
const skip = (_, at) => [null, at + 1];
/** @type {Reader} */
const rule = (_, at) => [html`<hr />`, at + 1];

/** @type {Reader} */
function fence(lines, at) {
  const [, mark, name] = /** @type {RegExpMatchArray} */ (lines[at].match(FENCE));
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const closing = lines[end].trim();
    if (closing.length >= mark.length && closing === mark[0].repeat(closing.length)) break;
  }
  return [code(lines.slice(at + 1, end).join('\n'), name.trim().split(/\s/, 1)[0].slice(0, 40)), end + 1];
}

/** @type {Reader} */
function indented(lines, at) {
  let end = at;
  while (end < lines.length && (lines[end].startsWith('    ') || (isBlank(lines[end]) && lines[end + 1]?.startsWith('    ')))) end += 1;
  return [code(lines.slice(at, end).map((line) => line.slice(4)).join('\n'), ''), end];
}

/** @param {string} text @param {string} language */
const code = (text, language) => html`<div class="code"><div class="bar"><span>${visible(language)}</span><${Copy} text=${text} label="Copy this code" /></div>
  <pre tabindex="0"><code>${visible(text)}</code></pre></div>`;

/** Headings of a text are no headings of the page. @type {Reader} */
function heading(lines, at) {
  const [mark, level] = /** @type {RegExpMatchArray} */ (lines[at].match(HEADING));
  return [html`<p class="heading h${level.length}">${inline(lines[at].slice(mark.length).trim())}</p>`, at + 1];
}

/** @type {Reader} */
function quote(lines, at, depth) {
  let end = at;
  const inner = [];
  for (; end < lines.length && QUOTE.test(lines[end]); end += 1) inner.push(lines[end].replace(QUOTE, ''));
  return [html`<blockquote>${blocks(inner, depth + 1)}</blockquote>`, end];
}

/** @param {string} line */
const indent = (line) => line.length - line.trimStart().length;

/** @type {Reader} */
function list(lines, at, depth) {
  const [, before, first] = /** @type {RegExpMatchArray} */ (lines[at].match(ITEM));
  const ordered = first.length > 1;
  const items = [];
  let end = at;
  while (end < lines.length && !isRule(lines[end])) {
    const found = lines[end].match(ITEM);
    if (!found || found[1].length > before.length + 1 || found[1].length < before.length || found[2].at(-1) !== first.at(-1)) break;
    const [inner, next] = item(lines, end, found);
    items.push(html`<li>${tight(blocks(inner, depth + 1))}</li>`);
    end = next;
  }
  return [ordered ? html`<ol start=${parseInt(first, 10)}>${items}</ol>` : html`<ul>${items}</ul>`, end];
}

/** The lines of an item, without their indent, and where the next item begins.
 * @param {string[]} lines @param {number} at @param {RegExpMatchArray} mark @returns {[string[], number]} */
function item(lines, at, mark) {
  const inner = [lines[at].slice(mark[0].length).replace(/^\[([ xX])\] /, (_, done) => (done === ' ' ? '☐ ' : '☑ '))];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const deep = indent(line);
    if (isBlank(line)) inner.push('');
    else if (deep >= mark[1].length + 2) inner.push(line.slice(Math.min(deep, mark[0].length)));
    else if (inner.at(-1) && !interrupts(line) && !ITEM.test(line)) inner.push(line);
    else break;
  }
  return [inner, end];
}

/** Paragraphs at the begin of an item need no space around them. @param {any[]} nodes */
const tight = (nodes) => (nodes[0]?.type === 'p' && !nodes[0].props.class ? [nodes[0].props.children, ...nodes.slice(1)] : nodes);

/** @type {Reader} */
function table(lines, at) {
  const head = cells(lines[at]);
  const sides = cells(lines[at + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : null));
  const rows = [];
  let end = at + 2;
  for (; end < lines.length && lines[end].includes('|') && !interrupts(lines[end]); end += 1) {
    rows.push(html`<tr>${cells(lines[end]).slice(0, head.length).map((cell, n) => html`<td class=${sides[n]}>${inline(cell)}</td>`)}</tr>`);
  }
  return [html`<div class="scroll" tabindex="0"><table><thead><tr>${head.map((cell, n) => html`<th class=${sides[n]}>${inline(cell)}</th>`)}</tr></thead>
    <tbody>${rows}</tbody></table></div>`, end];
}

/** @param {string} line */
function cells(line) {
  const found = [];
  let parts = [];
  for (const part of line.trim().replace(/^\|/, '').split('|')) {
    parts.push(part.endsWith('\\') ? part.slice(0, -1) : part);
    if (part.endsWith('\\')) continue;
    found.push(parts.join('|').trim());
    parts = [];
  }
  if (parts.length) found.push(parts.join('|').trim());
  return found.length > 1 && !found.at(-1) ? found.slice(0, -1) : found;
}

/** @type {Reader} */
function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !interrupts(lines[end]) && !isTable(lines[end], lines[end + 1])) end += 1;
  return [html`<p>${inline(lines.slice(at, end).join('\n').trim())}</p>`, end];
}

// Texts within a block

const SPECIAL = /[\\`*_~[!<\n]|https?:\/\//g;
const URL_AT = /https?:\/\/[^\s<>"`\]]+/y;
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]*)>/y;
const BREAK = /<br ?\/?>/iy;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;
const TAGS = { '*': 'em', _: 'em', '**': 'strong', __: 'strong', '~~': 'del' };

/** @param {string} text @param {boolean} [links] whether links are made @returns {any[]} */
function inline(text, links = true) {
  const output = new Output();
  const ticks = tickRuns(text);
  const brackets = links ? bracketPairs(text, ticks) : new Map();
  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    output.text(text.slice(at, next));
    at = next;
    if (at >= text.length) break;
    at = mark(text, at, output, ticks, brackets, links);
  }
  return output.finish();
}

/** Read what begins with a special character, and return where the text goes on.
 * @param {string} text @param {number} at @param {Output} output @param {Map<number, [number, number]>} ticks
 * @param {Map<number, number>} brackets @param {boolean} links @returns {number} */
function mark(text, at, output, ticks, brackets, links) {
  const one = text[at];
  if (one === '\\') return escape(text, at, output);
  if (one === '`') return codeSpan(text, at, output, ticks);
  if (one === '\n') return lineBreak(text, at, output);
  if (one === '*' || one === '_' || one === '~') return emphasis(text, at, output);
  if (links && (one === '[' || (one === '!' && text[at + 1] === '['))) {
    const end = linkAt(text, at, output, brackets);
    if (end) return end;
  } else if (links && (one === '<' || one === 'h')) {
    const end = bareLink(text, at, output);
    if (end) return end;
  }
  output.text(one);
  return at + 1;
}

/** @param {string} text @param {number} at @param {Output} output */
function escape(text, at, output) {
  const next = text[at + 1];
  if (next === '\n') output.node(html`<br />`);
  else output.text(next && PUNCTUATION.test(next) ? next : `\\${next ?? ''}`);
  return at + 2;
}

/** @param {string} text @param {number} at @param {Output} output */
function lineBreak(text, at, output) {
  if (text.endsWith('  ', at)) output.node(html`<br />`);
  else output.text('\n');
  return at + 1;
}

/** Where each run of backticks that begins a code span ends, and where the closing run begins.
 * @param {string} text @returns {Map<number, [number, number]>} */
function tickRuns(text) {
  const runs = [...text.matchAll(/`+/g)].map((run) => [run.index, run[0].length]);
  /** @type {Map<number, number>} */
  const next = new Map(); // the next run, by length
  const found = new Map();
  for (const [at, length] of runs.reverse()) {
    const closing = next.get(length);
    found.set(at, [at + length, closing ?? -1]);
    next.set(length, at);
  }
  return found;
}

/** @param {string} text @param {number} at @param {Output} output @param {Map<number, [number, number]>} ticks */
function codeSpan(text, at, output, ticks) {
  const [begin, end] = ticks.get(at) ?? [at + 1, -1]; // an escaped backtick may have split the run
  if (end < 0) {
    output.text(text.slice(at, begin));
    return begin;
  }
  const inner = text.slice(begin, end);
  output.node(html`<code>${visible(inner.length > 2 && inner.startsWith(' ') && inner.endsWith(' ') ? inner.slice(1, -1) : inner)}</code>`);
  return end + begin - at;
}

/** The closing bracket of each opening one, outside of code.
 * @param {string} text @param {Map<number, [number, number]>} ticks @returns {Map<number, number>} */
function bracketPairs(text, ticks) {
  const pairs = new Map();
  const open = [];
  const marks = /[\\`[\]]/g;
  for (let found = marks.exec(text); found; found = marks.exec(text)) {
    const at = found.index;
    if (found[0] === '\\') marks.lastIndex = at + 2;
    else if (found[0] === '[') open.push(at);
    else if (found[0] === ']') pairs.set(open.pop() ?? -1, at);
    else {
      const [begin, end] = ticks.get(at) ?? [at + 1, -1];
      marks.lastIndex = end < 0 ? begin : end + begin - at;
    }
  }
  return pairs;
}

/** A link or an image as `[label](target)`. @param {string} text @param {number} at @param {Output} output
 * @param {Map<number, number>} brackets @returns {number} where it ends, or 0 */
function linkAt(text, at, output, brackets) {
  const image = text[at] === '!';
  const open = image ? at + 1 : at;
  const close = brackets.get(open);
  if (close === undefined || text[close + 1] !== '(') return 0;
  const end = targetEnd(text, close + 2);
  const target = end && allowed(text.slice(close + 2, end).trim().split(/[ \t\n]/, 1)[0].replace(/^<(.*)>$/, '$1'));
  if (!target) return 0;
  const label = inline(text.slice(open + 1, close), false);
  output.node(link(target, image ? ['Image: ', ...label] : label, true));
  return end + 1;
}

/** Where the parenthesis around a target closes, or 0. @param {string} text @param {number} at */
function targetEnd(text, at) {
  for (let inner = 0; at < text.length && text[at] !== '\n'; at += 1) {
    if (text[at] === '(' && ++inner > 1) return 0;
    if (text[at] === ')' && --inner < 0) return at;
  }
  return 0;
}

/** A link that is written as its address. @param {string} text @param {number} at @param {Output} output
 * @returns {number} where it ends, or 0 */
function bareLink(text, at, output) {
  const pattern = text[at] === '<' ? AUTOLINK : URL_AT;
  pattern.lastIndex = at;
  const found = pattern.exec(text);
  if (!found) return text[at] === '<' ? breakTag(text, at, output) : 0;
  let shown = found[1] ?? found[0];
  if (pattern === URL_AT) {
    let end = shown.length;
    while (end && '.,;:!?\'")*_~'.includes(shown[end - 1])) end -= 1;
    shown = shown.slice(0, end);
  }
  const target = allowed(shown);
  if (target) output.node(link(target, [visible(shown)], Boolean(target.username)));
  else output.text(text.slice(at, at + shown.length));
  if (!target) return at + shown.length;
  return at + (found[1] ? found[0].length : shown.length);
}

/** @param {string} text @param {number} at @param {Output} output @returns {number} where the tag ends, or 0 */
function breakTag(text, at, output) {
  BREAK.lastIndex = at;
  const found = BREAK.exec(text);
  if (found) output.node(html`<br />`);
  return found ? at + found[0].length : 0;
}

/** An address that may be linked to. @param {string} text */
function allowed(text) {
  const target = URL.canParse(text) ? new URL(text) : null;
  return target && PROTOCOLS.includes(target.protocol) ? target : null;
}

/** @param {URL} target @param {any[]} label @param {boolean} named whether the label may hide the target */
const link = (target, label, named) => html`<a href=${target.href} rel="noopener noreferrer" target="_blank" title=${visible(target.href)}
  >${label}</a>${named && html`<span class="target"> (${target.host || visible(target.pathname)})</span>`}`;

/** @param {string} text @param {number} at @param {Output} output */
function emphasis(text, at, output) {
  const one = text[at];
  let end = at + 1;
  while (text[end] === one) end += 1;
  const length = end - at;
  const before = text[at - 1] ?? ' ';
  const after = text[end] ?? ' ';
  const inWord = one === '_' && WORD.test(before) && WORD.test(after);
  if (length > 3 || (one === '~' && length !== 2) || inWord) {
    output.text(text.slice(at, end));
    return end;
  }
  let left = length;
  if (before.trim()) left = output.close(one, left);
  if (left && after.trim()) left = output.open(one, left);
  output.text(one.repeat(left));
  return end;
}

/** What is written so far: finished nodes, and emphasis that is open. */
class Output {
  constructor() {
    /** @type {{mark: string, nodes: any[]}[]} */
    this.frames = [{ mark: '', nodes: [] }];
    /** @type {Record<string, number[]>} where the frames of each mark are */
    this.places = { '*': [], '**': [], _: [], __: [], '~~': [] };
  }

  /** @param {string} text */
  text(text) {
    const { nodes } = /** @type {any} */ (this.frames.at(-1));
    if (typeof nodes.at(-1) === 'string') nodes.push(nodes.pop() + visible(text));
    else if (text) nodes.push(visible(text));
  }

  /** @param {any} node */
  node(node) {
    /** @type {any} */ (this.frames.at(-1)).nodes.push(node);
  }

  /** Open emphasis by a run of marks. @param {string} one @param {number} length @returns {number} how many marks are left */
  open(one, length) {
    for (const size of length === 3 ? [2, 1] : [length]) {
      if (this.frames.length > OPEN) return length;
      const mark = one.repeat(size);
      this.places[mark].push(this.frames.length);
      this.frames.push({ mark, nodes: [] });
      length -= size;
    }
    return length;
  }

  /** Close what a run of marks closes. @param {string} one @param {number} length @returns {number} how many marks are left */
  close(one, length) {
    for (;;) {
      const sizes = [1, 2].filter((size) => size <= length && this.places[one.repeat(size)]?.length);
      const place = Math.max(-1, ...sizes.map((size) => /** @type {number} */ (this.places[one.repeat(size)].at(-1))));
      if (place < 0) return length;
      this.flatten(place + 1);
      const { mark, nodes } = /** @type {any} */ (this.frames.pop());
      this.places[mark].pop();
      this.node(html`<${TAGS[/** @type {keyof typeof TAGS} */ (mark)]}>${nodes}<//>`);
      length -= mark.length;
    }
  }

  /** Make frames text again, from one on. @param {number} from */
  flatten(from) {
    const nodes = this.frames[from - 1].nodes;
    for (const frame of this.frames.splice(from)) {
      nodes.push(frame.mark);
      for (const node of frame.nodes) nodes.push(node);
      this.places[frame.mark].pop();
    }
  }

  finish() {
    this.flatten(1);
    return this.frames[0].nodes;
  }
}
