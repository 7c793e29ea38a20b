// @ts-check
// Formats a number with its noun: "1 kernel", "1,234 launches".
const plural = (noun) => (/(s|x|ch|sh)$/.test(noun) ? `${noun}es` : /[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ies` : `${noun}s`);

export const noun = (number, one, many = plural(one)) => (number === 1 ? one : many);

export const counted = (number, one, many = plural(one)) => `${number.toLocaleString("en")} ${noun(number, one, many)}`;

// Turns a clause from an engine into a sentence, like `sentence` in webapp/ui/figures.py.
export const sentence = (text) => text && text[0].toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");
