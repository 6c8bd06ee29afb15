export type {
  BatchExecRequest,
  BatchExecResult,
  ExecExit,
  ExecRequest,
  ExecResult,
  Health,
  Language,
  RunRequest,
  RunResult,
  SessionCreate,
  SessionList,
  SessionRecord,
} from "@vivarium/contract/api";
export { Client, type ClientOptions } from "./client.ts";
export { type ClientErrorCode, VivariumError } from "./errors.ts";
export type { ExecEvent } from "./exec.ts";
export type { CallOptions, Fetch } from "./transport.ts";
