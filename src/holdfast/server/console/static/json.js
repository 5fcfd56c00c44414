// @ts-check
/** JSON whose integers are as they were written, also those that are too large for a number, where the
 * browser can do that: nobody may approve, or edit, other arguments than those of the call. */

const DIGITS = /\d{16}/; // of an integer that a number may not hold
const json = /** @type {any} */ (JSON);

/** @param {string} text @returns {any} */
export const parsed = (text) => (json.rawJSON && DIGITS.test(text) ? JSON.parse(text, exact) : JSON.parse(text));

/** Whether a value is an integer that is too large for a number. @param {unknown} value */
export const isLarge = (value) => json.isRawJSON?.(value) ?? false;

/** @param {string} name @param {any} value @param {any} [context] */
function exact(name, value, context) {
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? json.rawJSON(context.source) : value;
}
