/**
 * How much work a text is for JSON.parse, told before it is given to it: bytes of an agent that are all brackets take a
 * hundred times as long as names, and this process does nothing else meanwhile.
 */

/** The most that an honest answer has are the words of all named processes, each of them empty: 2.8 million. */
const MOST_PARTS = 4_000_000;
/** Objects and arrays cost more. All lines that a search finds, with the lines around them, have half as many. */
const MOST_NESTS = 300_000;
/**
 * So do words that are all different: each is looked for among those before it. A search finds 1.2 million at most, and
 * named processes have 1.7; words of fewer bytes soon repeat.
 */
const MOST_WORDS = 2_000_000;
const WORD_BYTES = 4;

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const BRACKET = 0x5b;
const BRACE = 0x7b;

/** Whether the text has no more values than an honest answer. It need not be JSON. */
export function isLight(text: Buffer): boolean {
  let [parts, nests, words] = [0, 0, 0];
  for (let at = 0; at < text.length; at++) {
    const byte = text[at];
    if (byte === COMMA) parts++;
    else if (byte === BRACKET || byte === BRACE) nests++;
    else if (byte === QUOTE) {
      const end = endOfString(text, at + 1);
      if (end - at > WORD_BYTES) words++;
      at = end;
    }
    if (parts > MOST_PARTS || nests > MOST_NESTS || words > MOST_WORDS) return false;
  }
  return true;
}

/** Where its closing quote is, or the end of the text. */
function endOfString(text: Buffer, from: number): number {
  let at = from;
  while (at < text.length && text[at] !== QUOTE) at += text[at] === BACKSLASH ? 2 : 1;
  return at;
}
