/** Reads `WWW-Authenticate`: the challenges with which a registry says how it wants to be asked. */

export interface Challenge {
  /** Lower case. */
  scheme: string;
  /** Names in lower case. A name that appears twice has its first value. */
  parameters: Map<string, string>;
}

const MAX_CHARS = 8 * 1024;
const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const SCHEME = new RegExp(`[\\s,]*(${TOKEN})(?:[ \\t]+|(?=,)|$)`, "y");
const PARAMETER = new RegExp(
  `[\\s,]*(${TOKEN})[ \\t]*=[ \\t]*(?:"((?:[^"\\\\]|\\\\.)*)"|(${TOKEN}))[ \\t]*(?=,|$)`,
  "y",
);

/** Challenges of all headers, in order. Text that is not one ends the reading: what was read before counts. */
export function readChallenges(headers: readonly string[]): Challenge[] {
  return headers.filter((header) => header.length <= MAX_CHARS).flatMap(readHeader);
}

function readHeader(header: string): Challenge[] {
  const challenges: Challenge[] = [];
  let at = 0;
  const take = (pattern: RegExp) => {
    pattern.lastIndex = at;
    const found = pattern.exec(header);
    if (found) at = pattern.lastIndex;
    return found;
  };
  for (;;) {
    const current = challenges.at(-1);
    // A parameter and a scheme begin alike: the equals sign makes the difference.
    const parameter = current && take(PARAMETER);
    if (current && parameter) {
      const [, name = "", quoted, plain] = parameter;
      const value = quoted === undefined ? plain : quoted.replaceAll(/\\(.)/g, "$1");
      if (!current.parameters.has(name.toLowerCase()))
        current.parameters.set(name.toLowerCase(), value ?? "");
      continue;
    }
    const scheme = take(SCHEME);
    if (!scheme) return challenges;
    challenges.push({ scheme: (scheme[1] ?? "").toLowerCase(), parameters: new Map() });
  }
}
