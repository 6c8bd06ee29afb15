import type { LIMITS } from "@vivarium/contract/api/limits";

/** What each limit bounds, for the guide. `null`: it belongs to a part that does not exist yet and is not printed. */
export const LIMIT_MEANINGS: Record<keyof typeof LIMITS, string | null> = {
  jsonBodyBytes: "the JSON body of a request",
  filesJsonBodyBytes: null,
  headerBytes: "all headers of a request together",
  errorMessageChars: "the `error` text of an answer",

  concurrentSessions:
    "sessions of an organisation that are `creating` or `live`, unless the organisation has another ceiling",
  maxLifetimeMs: null,
  idleTimeoutMs: null,
  continuousLiveMs: null,
  pausedTtlDefaultMs: null,
  wakeAtMaxMs: null,
  provisionMs: "how long a session may be `creating` before it is `failed`",
  failedRetentionMs: "how long a `failed` session is kept before it is destroyed",
  historyRetentionMs: "how long ended sessions stay listed",
  creatingWaitMs: "how long an exec waits for a session that is `creating`",
  upgradeWaitMs: null,

  nameChars: "`name`",
  labelEntries: "`labels` of one session",
  labelKeyChars: "the name of a label",
  labelValueChars: "the value of a label",
  externalIdChars: "`external_id`",
  envKeyChars: "the name of a variable",
  envTotalBytes: "names and values of `env` together",
  connectionsPerSession: null,

  idempotencyKeyChars: "the `Idempotency-Key` header",
  idempotencyWindowMs: "how long an `Idempotency-Key` is remembered",

  listDefault: "sessions on a page where no `limit` is given",
  listMax: "sessions on a page; a larger `limit` counts as this one",

  execTimeoutDefaultMs: "`timeout_ms` where none is given",
  execTimeoutMaxMs: "`timeout_ms`",
  execOutputBytes: "each of stdout and stderr in a buffered answer; a stream has no such bound",
  execArgs: "strings in `command`",
  execPipeLingerMs: "how long output of surviving children is read once the command itself has ended",
  sseChunkBytes: "raw bytes in one `stdout` or `stderr` event",
  sseHeartbeatMs: "silence after which a stream sends a comment line",
  batchSessions: "sessions in one batch",
  batchOutputTotalBytes: "output of all items of a batch together, shared evenly",

  runDependencies: "`dependencies` of one run",
  runDependencyChars: "one dependency",

  pathBytes: "`cwd`",
  pathComponentBytes: null,
  namedProcesses: null,
  forkChildrenHard: "children of one fork, whatever is configured",
  forkChildrenDefault: "children of one fork, unless the operator sets `VIV_FORK_CHILDREN`",
  checkpointsPerOrg: "checkpoints of an organisation",
  pageDefault: "checkpoints on a page where no `limit` is given",
  pageMax: "checkpoints on a page; a larger `limit` counts as this one",
  descriptionChars: "`description` of a template",
};
