import { spawn } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";

const PROGRAM = `import { processTerminal } from "${join(import.meta.dirname, "terminal.ts")}";
console.log("can ask:", String(processTerminal.canAsk));
if (processTerminal.canAsk) console.log("answer:", JSON.stringify(await processTerminal.ask("End? ")));`;
const ASKS = `'${process.execPath}' --input-type=module -e '${PROGRAM}'`;

/** The program on a terminal of its own, where these keys are pressed when it has asked. */
async function onTerminal(keys: string): Promise<{ code: number | null; said: string }> {
  const child = spawn("script", ["-qfec", ASKS, "/dev/null"], { stdio: ["pipe", "pipe", "inherit"] });
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

test("without a terminal as input, no human can be asked", async () => {
  const child = spawn("sh", ["-c", ASKS], { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  for await (const chunk of child.stdout) said += chunk;
  expect(said).toBe("can ask: false\n");
});
