/**
 * Prints docs/rooms.md: every folder of sources with its files, each with the first sentence of its first comment.
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

A room is a folder of sources that owns one noun. This page is printed from the first comment of each file by
\`npm run docs\`; a file without a comment is what its name says. Which room may import which:
\`test/support/floor-rules.ts\`.
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

/** Of the comment at the head of the file, or else of the first thing that is documented. */
function firstSentence(file: string, text: string): string {
  const inRust = () => (/^(?:\/\/!.*\n)+/.exec(text) ?? /^(?:\/\/\/.*\n)+/m.exec(text))?.[0] ?? "";
  const comment = file.endsWith(".rs")
    ? inRust().replaceAll(/^\/\/[/!] ?/gm, "")
    : (/\/\*\*([\s\S]*?)\*\//.exec(text)?.[1] ?? "").replaceAll(/^\s*\* ?/gm, "");
  const [paragraph = ""] = comment.split(/\n\s*\n/);
  const plain = paragraph.replaceAll(/\s+/g, " ").trim();
  const sentence = (/^.*?[.:](?= |$)/.exec(plain)?.[0] ?? plain).replace(/[.:]$/, "");
  const isLong = sentence.length > SENTENCE_CHARS;
  const short = isLong ? `${sentence.slice(0, SENTENCE_CHARS).replace(/\s+\S*$/, "")} …` : sentence;
  return short.replaceAll("<", "\\<");
}
