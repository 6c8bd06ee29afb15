/**
 * Words that comments and names of sources must not use, with better ones. Each is ambiguous or vague. Words that are
 * used with one fixed meaning are in the glossary.
 */
import type { Source } from "./source-rules.ts";

interface BannedWord {
  pattern: RegExp;
  where: "comment" | "comment-start" | "identifier";
  say: string;
}

const BANNED: readonly BannedWord[] = [
  {
    pattern:
      /^(What(ever)?|Who(ever|se)?|Of|Those (that|who|which)|(The )?[Oo]ne (that|who|which)|That which)\b/,
    where: "comment-start",
    say: 'begin with the noun that is meant: "The bytes that …", "A client that …"',
  },
  {
    pattern: /\b(told|tells?|telling)\b/i,
    where: "comment",
    say: "reported, configured, answered, emitted, logged, sent",
  },
  {
    pattern: /\bwho(so)?ever\b/i,
    where: "comment",
    say: "name who: the caller, the client, another process",
  },
  { pattern: /\b(go|goes|went|going) on\b/i, where: "comment", say: "continues, keeps running, remains" },
  {
    pattern: /\b(stand|stands|stood|standing) still\b/i,
    where: "comment",
    say: "is stopped, is frozen, is paused",
  },
  {
    pattern: /(?<!there )\b(is|are|was|were) (a |an )?none\b|\bbe none\b/i,
    where: "comment",
    say: "does not exist, is not one, is absent",
  },
  {
    pattern: /\b(nobody|somebody|everybody|anybody)'s\b/i,
    where: "comment",
    say: "name the owner: another caller's, shared by all callers",
  },
  { pattern: /\bin vain\b/i, where: "comment", say: "without a result, failed" },
  {
    pattern: /\brooms?\b/i,
    where: "comment",
    say: "memory, disk space, headroom, buffer; a room is a source folder only, in ARCHITECTURE.md",
  },
  { pattern: /\b(takes?|took|taking|by) turns\b/i, where: "comment", say: "one at a time, serially, a lock" },
  {
    pattern:
      /\b(?<!docs\/operate\/)(wire|interface|security|architecture|decisions|performance|taste|house|libraries)\.md\b/,
    where: "comment",
    say: "a page in docs/, or the sentence that was meant",
  },
  {
    pattern:
      /\bparts? \d+, \d|\(interface\b|\binterface "|\bwire contract\b|\bsecurity (design )?C\d|\[[BD]\]/,
    where: "comment",
    say: "a page in docs/spec, or the sentence that was meant",
  },
  {
    pattern: /(^|[a-z_])(T|\bt)(old|ell|ells|elling)(?![a-z])/,
    where: "identifier",
    say: "emit, report, log, send, answer",
  },
  {
    pattern:
      /^(heed|heeds|heeded|pour|pours|poured|hoped|crumble|farewell|hygiene|strangers?|lookedInVain|letGo|letRun|goOn|goesOn|introduce)(?![a-z])|[a-z](Heed|Pour|Hoped|Crumble|Farewell|Hygiene|Stranger|InVain)(?![a-z])/,
    where: "identifier",
    say: "the field's term: guard, pipe, pending, close, strict, orphan, thaw, handshake, continue",
  },
  {
    pattern: /^(rooms?)(?![a-z])|[a-z]Rooms?(?![a-z])/,
    where: "identifier",
    say: "buffer, quota, space, headroom",
  },
];

/** Matches comments; strings, templates and regular expressions match first, so that marks in them do not count. */
const TOKEN =
  /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\[\s\S])*`|(?<=[=(,:!&|?{};[>\n]\s*|return )\/(?![*/])(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[dgimsuvy]*|(?<comment>\/\*[\s\S]*?\*\/|\/\/[^\n]*(?:\n[ \t]*\/\/[^\n]*)*)/g;

function commentsOf(text: string): string[] {
  return [...text.matchAll(TOKEN)].flatMap(({ groups }) =>
    groups?.comment
      ? [groups.comment.replace(/^(?:\/\*\*?|\/\/)\s*|\s*\*\/$/g, "").replace(/\n\s*(?:\*|\/\/)?\s*/g, " ")]
      : [],
  );
}

function namesOf(text: string): string[] {
  return [...new Set(text.replaceAll(TOKEN, " ").match(/[A-Za-z_$][\w$]*/g) ?? [])];
}

/** Titles of tests, which are checked like comments. */
function titlesOf(text: string): string[] {
  const calls = text.matchAll(/\b(?:test|describe|it)(?:\.\w+)*(?:\([^"`]*?\))?\(\s*["`]([^"`\n]+)["`]/g);
  return [...calls].map(([, title = ""]) => title);
}

/** Banned words of a file, each with its replacement. */
export function bannedWords({ path, text }: Source): string[] {
  const comments = [...commentsOf(text), ...(path.endsWith(".test.ts") ? titlesOf(text) : [])];
  const names = namesOf(text);
  return BANNED.flatMap(({ pattern, where, say }) => {
    const texts = where === "identifier" ? names : comments;
    return texts
      .filter((one) => pattern.test(one))
      .map((one) => `${path}: ${one.slice(0, 100)} (say: ${say})`);
  });
}
