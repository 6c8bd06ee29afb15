import type { CommandLog } from "../audit/command-log.ts";
import type { MoveDeps } from "../moves/deps.ts";
import type { OutputRooms } from "./output-rooms.ts";

export interface ExecDeps extends MoveDeps {
  commandLog: CommandLog;
  outputRooms: OutputRooms;
}
