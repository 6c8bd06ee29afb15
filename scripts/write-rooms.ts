/**
 * Prints docs/rooms.md: every folder of sources with its files, each with the first sentence that describes it.
 * `--check` writes nothing and fails when the page is out of date.
 */
import { glob, readFile } from "node:fs/promises";
import path from "node:path";
import { writeOrCheck } from "./write-or-check.ts";

const ROOT = path.join(import.meta.dirname, "..");
const SOURCES = ["packages/*/src/**/*.ts", "guest/**/src/**/*.rs"];
const IS_TEST = /(\.test\.ts|_tests?\.rs|\/tests?\/.*\.rs)$/;
const SENTENCE_CHARS = 160;

const HEAD = `# Rooms

A room is a folder of sources that owns one noun. This page is printed by \`npm run docs\` from the comment at
the head of each file, or else from that on its first export; a file without either is what its name says. Which room
may import which: \`test/support/floor-rules.ts\`.
`;

const files = (await Array.fromAsync(glob(SOURCES, { cwd: ROOT })))
  .filter((file) => !IS_TEST.test(file) && !file.includes("/target/"))
  .toSorted();
const rooms = Map.groupBy(files, (file) => path.dirname(file));
const sections = await Promise.all([...rooms].map(async ([room, inside]) => await sectionOf(room, inside)));
await writeOrCheck(path.join(ROOT, "docs", "rooms.md"), `${HEAD}\n${sections.join("\n")}`, "npm run docs");

async function sectionOf(room: string, inside: string[]): Promise<string> {
  const lines = await Promise.all(
    inside.map(async (file) => {
      const sentence = firstSentence(file, await readFile(path.join(ROOT, file), "utf8"));
      return `- \`${path.basename(file)}\`${sentence && `: ${sentence}`}`;
    }),
  );
  return `## \`${room}\`\n\n${lines.join("\n")}\n`;
}

/** First sentence of the comment at the very beginning of a file, or else of the comment on its first export. */
function firstSentence(file: string, text: string): string {
  const comment = file.endsWith(".rs")
    ? (/^(?:\/\/!.*\n)+/.exec(text) ?? /^(?:\/\/\/.*\n)+/m.exec(text))?.[0].replaceAll(/^\/\/[/!] ?/gm, "")
    : (/^\/\*\*([\s\S]*?)\*\//.exec(text) ?? aboveFirstExport(text))?.[1]?.replaceAll(/^\s*\* ?/gm, "");
  const [paragraph = ""] = (comment ?? "").split(/\n\s*\n/);
  const plain = paragraph.replaceAll(/\s+/g, " ").trim();
  const sentence = (/^.*?\.(?= |$)/.exec(plain)?.[0] ?? plain).replace(/[.:]$/, "");
  const isLong = sentence.length > SENTENCE_CHARS;
  const short = isLong ? `${sentence.slice(0, SENTENCE_CHARS).replace(/\s+\S*$/, "")} …` : sentence;
  return short.replaceAll("<", "\\<");
}

/** The comment on the first export, with group 1 for its text. */
function aboveFirstExport(text: string): RegExpExecArray | null {
  const code = text.slice(0, /^export\b/m.exec(text)?.index);
  return /(?:^|\n)\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n(?:\/\/.*\n)*$/.exec(code);
}
