import { expect, test } from "vitest";
import { DEFAULT_SIZE, LIMITS, SIZES } from "./limits.ts";

const MIB = 1024 * 1024;
const HOUR_MS = 3_600_000;

/** The documented limits, then the smaller ones. */
const ROWS: [what: string, found: number, expected: number][] = [
  ["wrong credentials per minute from one IP", LIMITS.wrongCredentialsPerMinute, 60],
  ["concurrent live sessions per account", LIMITS.concurrentSessions, 10],
  ["idle_timeout_ms: maximum 1 hour", LIMITS.idleTimeoutMs, HOUR_MS],
  ["max_lifetime_ms: maximum 24 hours", LIMITS.maxLifetimeMs, 24 * HOUR_MS],
  ["continuous live time: 24 hours", LIMITS.continuousLiveMs, 24 * HOUR_MS],
  ["paused_ttl_ms: default 30 days", LIMITS.pausedTtlDefaultMs, 2_592_000_000],
  ["exec timeout_ms: default 30 seconds", LIMITS.execTimeoutDefaultMs, 30_000],
  ["exec timeout_ms: maximum 1 hour", LIMITS.execTimeoutMaxMs, HOUR_MS],
  ["buffered exec output: 4 MiB per stream", LIMITS.execOutputBytes, 4 * MIB],
  ["named processes per session", LIMITS.namedProcesses, 32],
  ["external_id", LIMITS.externalIdChars, 256],
  ["Idempotency-Key", LIMITS.idempotencyKeyChars, 255],
  ["Idempotency-Key: retry window 24 hours", LIMITS.idempotencyWindowMs, 24 * HOUR_MS],
  ["Connections per session", LIMITS.connectionsPerSession, 16],
  ["wake_at: at most 90 days out", LIMITS.wakeAtMaxMs, 90 * 24 * HOUR_MS],
  ["list: limit default 20", LIMITS.listDefault, 20],
  ["list: limit above 500 is 500", LIMITS.listMax, 500],
  ["JSON body 1 MiB", LIMITS.jsonBodyBytes, MIB],
  ["JSON body of file writes 32 MiB", LIMITS.filesJsonBodyBytes, 32 * MIB],
  ["error message", LIMITS.errorMessageChars, 500],
  ["provisioning: 5 minutes", LIMITS.provisionMs, 300_000],
  ["wait on creating: 60 s", LIMITS.creatingWaitMs, 60_000],
  ["wait of an upgrade: 25 s", LIMITS.upgradeWaitMs, 25_000],
  ["failed sessions are kept 24 h", LIMITS.failedRetentionMs, 24 * HOUR_MS],
  ["history is kept 30 days", LIMITS.historyRetentionMs, 30 * 24 * HOUR_MS],
  ["name", LIMITS.nameChars, 128],
  ["labels: entries", LIMITS.labelEntries, 64],
  ["labels: key", LIMITS.labelKeyChars, 128],
  ["labels: value", LIMITS.labelValueChars, 512],
  ["env: key", LIMITS.envKeyChars, 128],
  ["env and secrets together", LIMITS.envTotalBytes, 64 * 1024],
  ["command: strings", LIMITS.execArgs, 1024],
  ["pipes held after the end: 500 ms", LIMITS.execPipeLingerMs, 500],
  ["SSE chunk", LIMITS.sseChunkBytes, 32 * 1024],
  ["SSE heartbeat", LIMITS.sseHeartbeatMs, 15_000],
  ["batch: sessions", LIMITS.batchSessions, 50],
  ["batch: output together", LIMITS.batchOutputTotalBytes, 64 * MIB],
  ["run: dependencies", LIMITS.runDependencies, 64],
  ["run: dependency", LIMITS.runDependencyChars, 256],
  ["path", LIMITS.pathBytes, 4096],
  ["path component", LIMITS.pathComponentBytes, 255],
  ["file read as JSON: 4 MiB", LIMITS.fileReadBytes, 4 * MIB],
  ["file written as JSON: 8 MiB", LIMITS.fileWriteBytes, 8 * MIB],
  ["batch of files", LIMITS.batchFiles, 64],
  ["batch of files: contents together", LIMITS.batchFilesBytes, 8 * MIB],
  ["message of a WebSocket", LIMITS.webSocketMessageBytes, MIB + 64],
  ["fork: hard cap", LIMITS.forkChildrenHard, 16],
  ["fork: configured cap", LIMITS.forkChildrenDefault, 4],
  ["checkpoints per organisation", LIMITS.checkpointsPerOrg, 100],
  ["pages: limit default 50", LIMITS.pageDefault, 50],
  ["pages: limit above 200 is 200", LIMITS.pageMax, 200],
  ["description of a template", LIMITS.descriptionChars, 512],
];

test.each(ROWS)("%s", (_what, found, expected) => {
  expect(found).toBe(expected);
});

test("the tiers of size", () => {
  expect(SIZES).toMatchObject({
    small: { vcpus: 1, mem_mb: 1024 },
    medium: { vcpus: 2, mem_mb: 4096 },
    large: { vcpus: 4, mem_mb: 8192 },
  });
  expect(Object.keys(SIZES)).toHaveLength(3);
  expect(DEFAULT_SIZE).toBe("small");
});
