/**
 * The operations that change something or run something, with the action of their audit entries. A test holds that every
 * operation of the interface but reads is here. This table imports nothing.
 */

/** Written in the transaction of the change. */
const WITH_THE_CHANGE = {
  createSession: "session.create",
  startCheckpoint: "session.create",
  run: "session.create",
  deleteSession: "session.destroy",
  pauseSession: "session.pause",
  resumeSession: "session.resume",
  retryArchive: "session.archive_retry",
  restoreSession: "session.restore",
  forkSession: "session.fork",
  updateSession: "session.update",
  createCheckpoint: "checkpoint.create",
  deleteCheckpoint: "checkpoint.delete",
  captureArtifacts: "artifact.capture",
  extendArtifact: "artifact.extend",
  deleteArtifact: "artifact.delete",
  saveTemplate: "template.save",
  importTemplate: "template.import",
  deleteTemplate: "template.delete",
  createVolume: "volume.create",
  growVolume: "volume.grow",
  deleteVolume: "volume.delete",
  createRegistryCredential: "registry_credential.create",
  deleteRegistryCredential: "registry_credential.delete",
  setEgress: "egress.set",
  setOrgEgressCap: "org.set_egress_cap",
  exposePort: "preview.expose",
  unexposePort: "preview.unexpose",
  createApiKey: "key.create",
  revokeApiKey: "key.revoke",
  createProject: "project.create",
  updateProject: "project.update",
  deleteProject: "project.delete",
  createConnection: "connection.create",
  replaceConnection: "connection.replace",
  revokeConnection: "connection.revoke",
  mintToken: "token.mint",
  revokeToken: "token.revoke",
} as const;

/** Changes inside a guest, of which the database knows nothing: written once the guest has answered. */
const AFTER_THE_ANSWER = {
  endProcess: "process.end",
  writeFile: "file.write",
  writeFiles: "file.write",
  uploadFile: "file.write",
  callFiles: "file.write",
  deleteFile: "file.delete",
  makeDirectory: "file.make_directory",
  renameFile: "file.rename",
} as const;

/**
 * Commands: written when they start, and completed when they end. A terminal with a command is a `session.exec`. Terminals
 * and tunnels are written when they are open.
 */
const AS_A_COMMAND = {
  exec: "session.exec",
  execBatch: "session.exec",
  startProcess: "session.exec",
  openTerminal: "terminal.open",
  openTunnel: "tunnel.open",
} as const;

/** Moves that a session makes, by the type of their event. */
export const MOVE_ACTIONS = {
  "session.live": "session.ready",
  "session.paused": "session.pause",
  "session.resumed": "session.resume",
  "session.restored": "session.restore",
  "session.recovered": "session.recover",
  "session.lifetime_expired": "session.expire",
  "session.node_lost": "session.lose_node",
  "session.failed": "session.fail",
  "session.destroyed": "session.destroy",
} as const;

/** A denial of an operation that is in no table: a read, or a path that does not exist. */
export const OTHER_CALL = "api.call";
/** The use of a Connection's credential, and requests that its Connection refused: one entry for each Connection and minute. */
export const USE_OF_CONNECTION = "connection.use";
/** Denials of a minute that were too many to have an entry each. */
export const SUPPRESSED = "denials.suppressed";

/** Operations of the installation, which belongs to no organisation: they are in the log of the control plane. */
export const OF_THE_OPERATOR: readonly string[] = ["rotateKek"];

export const AUDIT_ACTIONS = { ...WITH_THE_CHANGE, ...AFTER_THE_ANSWER, ...AS_A_COMMAND } as const;

export type AuditAction =
  | (typeof AUDIT_ACTIONS)[keyof typeof AUDIT_ACTIONS]
  | (typeof MOVE_ACTIONS)[keyof typeof MOVE_ACTIONS]
  | typeof OTHER_CALL
  | typeof USE_OF_CONNECTION
  | typeof SUPPRESSED;

/** The action of an operation, by the operation's id. */
export function auditActionOf(operationId: string | undefined): AuditAction {
  return (AUDIT_ACTIONS as Record<string, AuditAction>)[operationId ?? ""] ?? OTHER_CALL;
}

/** Whether the operation's entry is written once its answer was sent. */
export function isAuditedAfterAnswer(operationId: string | undefined): boolean {
  return operationId !== undefined && Object.hasOwn(AFTER_THE_ANSWER, operationId);
}
