/** Brings host names into the canonical form in which policies are compared. */

const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/;
const MAX_NAME = 253;

/** Lower case, without a trailing dot. Null unless it is a host name of two or more labels; addresses are not. */
export function normaliseName(text: string): string | null {
  const name = text.toLowerCase().replace(/\.$/, "");
  if (name.length > MAX_NAME) return null;
  const labels = name.split(".");
  const isName = labels.length >= 2 && labels.every((label) => LABEL.test(label));
  return isName && !/^\d+$/.test(labels.at(-1) ?? "") ? name : null;
}

/** For `a.example.com`: `example.com`, then `com`, the names behind `*.` of matching wildcards. */
export function parentsOf(name: string): string[] {
  const labels = name.split(".");
  return labels.slice(1).map((_, index) => labels.slice(index + 1).join("."));
}
