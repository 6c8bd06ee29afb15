import { LIMITS } from "@vivarium/contract/api";
import { describe, expect, test } from "vitest";
import { captureCommand } from "./capture.ts";

const pepper = Buffer.alloc(32, 1);
const context = { pepper, orgId: "org_a", secrets: [] as string[] };
const ARGV = ["curl", "-H", "token: hunter2", "https://example.com"];

describe("hash", () => {
  const hash = (argv: string[], more = {}) => captureCommand("hash", argv, { ...context, ...more }).hash;

  test("is a digest and nothing else, the same for the same command", () => {
    expect(captureCommand("hash", ARGV, context)).toEqual({ hash: expect.stringMatching(/^[0-9a-f]{64}$/) });
    expect(hash(ARGV)).toBe(hash([...ARGV]));
  });

  test("differs for different commands, also if only the ends of their words differ", () => {
    expect(hash(["a", "bc"])).not.toBe(hash(["ab", "c"]));
    expect(hash(["a", ""])).not.toBe(hash(["a"]));
  });

  test("is keyed by organisation and installation", () => {
    expect(hash(ARGV, { orgId: "org_b" })).not.toBe(hash(ARGV));
    expect(hash(ARGV, { pepper: Buffer.alloc(32, 2) })).not.toBe(hash(ARGV));
  });
});

test("executable is the first word alone", () => {
  expect(captureCommand("executable", ARGV, context)).toEqual({ executable: "curl" });
});

describe("full", () => {
  test("is the whole command", () => {
    expect(captureCommand("full", ARGV, context)).toEqual({ command: ARGV });
  });

  test("masks the values of secrets, the longer ones first", () => {
    const secrets = ["hunter", "hunter2", ""];
    expect(captureCommand("full", ARGV, { ...context, secrets }).command).toEqual([
      "curl",
      "-H",
      "token: [secret]",
      "https://example.com",
    ]);
    expect(captureCommand("executable", ["run-hunter2"], { ...context, secrets })).toEqual({
      executable: "run-[secret]",
    });
  });

  test("is cut at a whole character, and says so", () => {
    const long = captureCommand("full", ["sh", "-c", "é".repeat(LIMITS.auditCommandBytes), "last"], context);
    expect(long.truncated).toBe(true);
    expect(long.command?.slice(0, 2)).toEqual(["sh", "-c"]);
    expect(long.command).toHaveLength(3);
    expect(long.command?.[2]).toMatch(/^é+$/);
    expect(Buffer.byteLength(long.command?.join(" ") ?? "")).toBeLessThanOrEqual(LIMITS.auditCommandBytes);
    const fits = ["x".repeat(LIMITS.auditCommandBytes)];
    expect(captureCommand("full", fits, context)).toEqual({ command: fits });
  });
});
