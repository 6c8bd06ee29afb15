/** The public names of `@vivarium/sdk`. */
export type {
  ApiKeyCreate,
  ApiKeyCreated,
  ApiKeyList,
  ApiKeyRecord as ApiKey,
  Archive,
  Artifact,
  ArtifactList,
  AuditEntry,
  AuditExportLine,
  AuditFinding,
  AuditLink,
  BatchExecRequest,
  BatchExecResult,
  BuildLines,
  Checkpoint,
  CheckpointCreate,
  CheckpointList,
  CheckpointStart,
  ConnectionCreate,
  ConnectionList,
  ConnectionReplace,
  ConnectionStatus as Connection,
  EgressCap,
  EgressLogEntry,
  EgressPolicy,
  Event,
  ExecExit,
  ExecRequest,
  ExecResult,
  Exposed,
  ExposedPreview,
  FileBatchResult,
  FileEntries,
  FileUploaded,
  FileWriteResult,
  Fork,
  ForkResult,
  FoundLine,
  FoundLines,
  FoundPaths,
  Health,
  KekStatus,
  Language,
  OrgEgressCap,
  PausedSession,
  ProcessInfo,
  ProcessList,
  ProcessLogs,
  ProcessStart,
  ProjectCreate,
  ProjectList,
  ProjectPatch,
  ProjectRecord as Project,
  RegistryCredential,
  RegistryCredentialCreate,
  RegistryCredentialList,
  RunRequest,
  RunResult,
  SessionCreate,
  SessionEgress,
  SessionList,
  SessionRecord,
  Template,
  TemplateImport,
  TemplateList,
  TemplateSave,
  TokenCreate,
  TokenCreated,
  TokenRecord as Token,
  Volume,
  VolumeCreate,
  VolumeList,
} from "@vivarium/contract/api";
export type { Artifacts, SessionArtifacts } from "./artifacts.ts";
export type { Audit, AuditFilter, AuditVerdict, VerifyOptions } from "./audit.ts";
export { Client, type ClientOptions } from "./client.ts";
export type { CodeContext, CodeContextOptions, RunCodeOptions } from "./code/code-context.ts";
export type { CodeError, CodeExecution, CodeResult } from "./code/code-result.ts";
export type { Connections, SessionConnections } from "./connections.ts";
export { type ClientErrorCode, VivariumError } from "./errors.ts";
export type { EventFilter, Events } from "./events.ts";
export type { ExecEvent } from "./exec.ts";
export type { Files, FileToWrite, FindOptions, GrepOptions } from "./files/files.ts";
export type { UploadSource } from "./files/upload-source.ts";
export type { Keys, Projects } from "./keys.ts";
export type { Cap } from "./network/cap.ts";
export type { Egress, EgressLogFilter } from "./network/egress.ts";
export type { ExposeOptions, PreviewOptions } from "./network/expose.ts";
export type { Preview } from "./network/preview.ts";
export type { Org, OrgCap } from "./org.ts";
export type { LogChunk, Processes } from "./processes.ts";
export type { Registries } from "./registries.ts";
export type { Session } from "./session.ts";
export type { Terminal, TerminalOptions } from "./terminals/terminal.ts";
export type { Tokens } from "./tokens.ts";
export type { CallOptions, Fetch, TimedOptions } from "./transport.ts";
