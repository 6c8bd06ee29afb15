import { spawn } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";

const PROGRAM = `import { processTerminal } from "${join(import.meta.dirname, "terminal.ts")}";
console.log("can ask:", String(processTerminal.canAsk));
const how = process.argv[1];
if (processTerminal.canAsk) console.log("answer:", JSON.stringify(await processTerminal[how]("End? ")));`;
const ASKS = `'${process.execPath}' --input-type=module -e '${PROGRAM}' ask`;
const ASKS_HIDDEN = `'${process.execPath}' --input-type=module -e '${PROGRAM}' askHidden`;

/** The program on a terminal of its own, where these keys are pressed when it has asked. */
async function onTerminal(keys: string, program = ASKS): Promise<{ code: number | null; said: string }> {
  const child = spawn("script", ["-qfec", program, "/dev/null"], { stdio: ["pipe", "pipe", "inherit"] });
  let said = "";
  child.stdout.on("data", (chunk: Buffer) => {
    const wasAsked = said.includes("End? ");
    said += chunk;
    if (!wasAsked && said.includes("End? ")) child.stdin.end(keys);
  });
  const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
  return { code, said };
}

test.each([
  ["a line", "yes\n", { code: 0, said: expect.stringContaining('answer: "yes"') }],
  ["Ctrl-D", "\u0004", { code: 0, said: expect.stringContaining('answer: ""') }],
  ["Ctrl-C", "\u0003", { code: 130, said: expect.not.stringContaining("answer:") }],
])("a question on a terminal is answered with %s", async (_what, keys, result) => {
  expect(await onTerminal(keys)).toEqual(result);
});

test("the answer to a hidden question is not shown", async () => {
  const { code, said } = await onTerminal("sk_test\n", ASKS_HIDDEN);
  expect(code).toBe(0);
  expect(said.match(/sk_test/g)).toHaveLength(1);
  expect(said).toContain('answer: "sk_test"');
});

test.each([
  ["Ctrl-D", "\u0004", { code: 0, said: expect.stringContaining('answer: ""') }],
  ["Ctrl-C", "\u0003", { code: 1, said: expect.stringContaining("Interrupted") }],
])("%s ends a hidden question", async (_what, keys, result) => {
  expect(await onTerminal(keys, ASKS_HIDDEN)).toEqual(result);
});

test("without a terminal as input, no human can be asked", async () => {
  const child = spawn("sh", ["-c", ASKS], { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  for await (const chunk of child.stdout) said += chunk;
  expect(said).toBe("can ask: false\n");
});
