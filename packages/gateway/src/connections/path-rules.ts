/**
 * Decides by method and path whether a Connection allows a request. The path is compared as it was sent, so a path that
 * origin and gateway could read differently is refused before. Pure.
 */
import { hasUtf8Escapes } from "@vivarium/contract/api/path-escapes";

const SPACE = 0x20;
const PERCENT = 0x25;
const DELETE = 0x7f;

/** The path of a request target without its query; undefined when two readers could understand it differently. */
export function readPath(target: string): string | undefined {
  const [path = ""] = target.split("?", 1);
  return isPlainTarget(target) && isPlainPath(path) && hasUtf8Escapes(path) ? path : undefined;
}

/** Visible ASCII from a slash on: no absolute form, no `*`, no fragment. */
function isPlainTarget(target: string): boolean {
  return /^\/[\x21-\x22\x24-\x7e]*$/.test(target);
}

function isPlainPath(path: string): boolean {
  if (/[\\;]|\/\/|\/\.{1,2}(?:\/|$)/.test(path)) return false;
  return [...path.matchAll(/%(.{0,2})/g)].every(([, code = ""]) => isPlainEscape(code, path));
}

/**
 * Refuses escapes of separators and controls, of a percent sign (a second decoding would show another path), and of
 * characters that need no escape: for these the escaped and the bare form are the same path (RFC 3986 6.2.2.2).
 */
function isPlainEscape(code: string, path: string): boolean {
  if (!/^[0-9a-f]{2}$/i.test(code)) return false;
  const byte = Number.parseInt(code, 16);
  if (byte === PERCENT) return !/%25[0-9a-f]{2}/i.test(path);
  return byte >= SPACE && byte !== DELETE && !/[/\\;A-Za-z0-9._~-]/.test(String.fromCharCode(byte));
}

export interface PathRule {
  /** Index of the pattern in the Connection's list. */
  index: number;
  /** Segments behind the first slash. `*` stands for one whole segment. */
  segments: readonly string[];
  /** The pattern ends in `/*` or `/**`: everything below matches. */
  isPrefix: boolean;
}

export function compilePaths(patterns: readonly string[]): PathRule[] {
  return patterns.map((pattern, index) => {
    const isPrefix = /\/\*{1,2}$/.test(pattern);
    const fixed = isPrefix ? pattern.replace(/\/\*{1,2}$/, "") : pattern;
    return { index, segments: fixed.split("/").slice(1), isPrefix };
  });
}

/** The first rule that the path matches. */
export function findRule(rules: readonly PathRule[], path: string): PathRule | undefined {
  const segments = path.split("/").slice(1);
  return rules.find((rule) => matches(rule, segments));
}

function matches({ segments: wanted, isPrefix }: PathRule, segments: readonly string[]): boolean {
  if (isPrefix ? segments.length <= wanted.length : segments.length !== wanted.length) return false;
  return wanted.every((segment, at) => (segment === "*" ? segments[at] !== "" : segment === segments[at]));
}
