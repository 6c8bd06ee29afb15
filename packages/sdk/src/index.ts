export type {
  BatchExecRequest,
  BatchExecResult,
  Checkpoint,
  CheckpointCreate,
  CheckpointList,
  CheckpointStart,
  ExecExit,
  ExecRequest,
  ExecResult,
  Fork,
  ForkResult,
  Health,
  Language,
  PausedSession,
  RunRequest,
  RunResult,
  SessionCreate,
  SessionList,
  SessionRecord,
  Template,
  TemplateList,
  TemplateSave,
} from "@vivarium/contract/api";
export { Client, type ClientOptions } from "./client.ts";
export { type ClientErrorCode, VivariumError } from "./errors.ts";
export type { ExecEvent } from "./exec.ts";
export type { CallOptions, Fetch, TimedOptions } from "./transport.ts";
