/** Every limit of the interface. Units last in the names. Imports nothing. */
const KIB = 1024;
const MIB = 1024 * KIB;
const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

export const LIMITS = {
  jsonBodyBytes: 1 * MIB,
  filesJsonBodyBytes: 32 * MIB,
  headerBytes: 16 * KIB,
  errorMessageChars: 500,

  wrongCredentialsPerMinute: 60,
  concurrentSessions: 10,
  keysPerOrg: 1000,
  keyCeilingMax: 1_000_000,
  projectsPerOrg: 1000,
  tokensPerSession: 64,
  tokenTtlS: 2_592_000,
  maxLifetimeMs: 24 * HOUR_MS,
  idleTimeoutMs: 1 * HOUR_MS,
  continuousLiveMs: 24 * HOUR_MS,
  pausedTtlDefaultMs: 30 * DAY_MS,
  wakeAtMaxMs: 90 * DAY_MS,
  provisionMs: 5 * MINUTE_MS,
  failedRetentionMs: 24 * HOUR_MS,
  historyRetentionMs: 30 * DAY_MS,
  creatingWaitMs: 60 * SECOND_MS,
  upgradeWaitMs: 25 * SECOND_MS,

  nameChars: 128,
  labelEntries: 64,
  labelKeyChars: 128,
  labelValueChars: 512,
  externalIdChars: 256,
  envKeyChars: 128,
  envTotalBytes: 64 * KIB,
  connectionsPerSession: 16,
  connectionTtlS: 86_400,
  connectionSecretChars: 8_192,
  /** A session's together: each character takes the gateway about fifty bytes. */
  connectionSecretsChars: 32_768,
  connectionMethods: 16,
  connectionPaths: 64,
  connectionPathChars: 1_024,
  /** A session's together: its record shows them. */
  connectionPathsChars: 65_536,

  idempotencyKeyChars: 255,
  idempotencyWindowMs: 24 * HOUR_MS,

  listDefault: 20,
  listMax: 500,

  execTimeoutDefaultMs: 30 * SECOND_MS,
  execTimeoutMaxMs: 1 * HOUR_MS,
  execOutputBytes: 4 * MIB,
  execArgs: 1024,
  execPipeLingerMs: 500,
  sseChunkBytes: 32 * KIB,
  sseHeartbeatMs: 15 * SECOND_MS,
  batchSessions: 50,
  batchOutputTotalBytes: 64 * MIB,

  runDependencies: 64,
  runDependencyChars: 256,

  pathBytes: 4096,
  pathComponentBytes: 255,
  fileReadBytes: 4 * MIB,
  fileWriteBytes: 8 * MIB,
  batchFiles: 64,
  batchFilesBytes: 8 * MIB,
  searchResultsDefault: 1000,
  searchResultsMax: 10_000,
  searchFiles: 10_000,
  grepReadBytes: 256 * MIB,
  grepAnswerBytes: 8 * MIB,
  grepContextLines: 10,
  grepLineBytes: 4096,
  listEntries: 100_000,

  namedProcesses: 32,
  processEntries: 10_000,
  processRecordsBytes: 8 * MIB,
  exitedLogsBytes: 1024 * MIB,
  processLogReadBytes: 4 * MIB,
  processLogBytes: 10 * MIB,
  processGraceMs: 5 * SECOND_MS,

  terminals: 16,
  webSocketMessageBytes: 1 * MIB + 64,
  terminalDataBytes: 64 * KIB,
  webSocketPingMs: 30 * SECOND_MS,
  webSocketSilenceMs: 75 * SECOND_MS,

  forkChildrenHard: 16,
  forkChildrenDefault: 4,
  checkpointsPerOrg: 100,
  volumeGb: 1,
  volumeMaxGb: 10,
  volumeGbHard: 1024,
  volumeGbPerOrg: 100,
  registryCredentialsPerOrg: 100,
  registryUsernameChars: 256,
  registrySecretChars: 8_192,
  pageDefault: 50,
  pageMax: 200,
  descriptionChars: 512,
  imageReferenceChars: 1_024,
  templateBuildsPerOrg: 5,
  templateBuildsPerNode: 20,
  templateBuildAttempts: 3,
  templateBuildMs: 1 * HOUR_MS,

  artifactPaths: 64,
  artifactFiles: 10_000,
  artifactBytes: 5 * 1024 * MIB,
  artifactsPending: 32,
  artifactTeardownMs: 60 * SECOND_MS,
  artifactCaptureMs: 1 * HOUR_MS,
  artifactRetentionMs: 7 * DAY_MS,
  artifactRetentionMaxMs: 90 * DAY_MS,
  artifactLinkMs: 1 * HOUR_MS,

  archiveAttempts: 6,
  archiveRetryMs: 1 * HOUR_MS,
  /** How long the archive of a baseline stays although nothing differs from it. */
  archiveGraceMs: 7 * DAY_MS,
  durablePauseMs: 600 * SECOND_MS,
  diskFreeShare: 0.15,
  diskFreeBytes: 15 * 1024 * MIB,
  stateUnusedMs: 600 * SECOND_MS,

  egressEntries: 256,
  egressEntryChars: 255,
  /** Lines kept of each kind: connections allowed, connections refused, questions answered, questions refused. */
  egressLogLines: 10_000,
  egressLogRetentionMs: 7 * DAY_MS,
  previewsPerSession: 32,
  loginUrlChars: 2048,

  eventRetentionMs: 7 * DAY_MS,
  eventsBehind: 1000,

  auditRetentionMs: 90 * DAY_MS,
  auditCommandBytes: 4 * KIB,
  auditDenialsPerMinute: 600,
  auditUnknownDenialsPerMinute: 60,
  auditVerifyStep: 2000,
} as const;

/** The tiers of `size`. `disk_gb` is the virtual size of the session's disk. */
export const SIZES = {
  small: { vcpus: 1, mem_mb: 1024, disk_gb: 8 },
  medium: { vcpus: 2, mem_mb: 4096, disk_gb: 16 },
  large: { vcpus: 4, mem_mb: 8192, disk_gb: 32 },
} as const;
export type Size = keyof typeof SIZES;
export const SIZE_NAMES = Object.keys(SIZES) as readonly Size[];
export const DEFAULT_SIZE: Size = "small";

export function isSize(name: string): name is Size {
  return Object.hasOwn(SIZES, name);
}
