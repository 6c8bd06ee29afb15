/** Names of the policy's grammar, in one canonical form. */

const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/;
const MAX_NAME = 253;

/** Lower case, without one trailing dot. Null for anything else, addresses included. */
export function normaliseName(text: string): string | null {
  const name = text.toLowerCase().replace(/\.$/, "");
  if (name.length > MAX_NAME) return null;
  const labels = name.split(".");
  const isName = labels.length >= 2 && labels.every((label) => LABEL.test(label));
  return isName && !/^\d+$/.test(labels.at(-1) ?? "") ? name : null;
}

/** `example.com`, then `com`: the names that a matching wildcard may have. */
export function parentsOf(name: string): string[] {
  const labels = name.split(".");
  return labels.slice(1).map((_, index) => labels.slice(index + 1).join("."));
}
