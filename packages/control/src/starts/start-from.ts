/** Resolves the origin of a new session (a template or a checkpoint) and the settings that it inherits. */

import { DEFAULT_SIZE, isSize, LIMITS, type ParsedSessionCreate, type Size } from "@vivarium/contract/api";
import { variablesBytes } from "@vivarium/contract/api/wire-types";
import type { Scope } from "../access/principal.ts";
import { getCheckpoint } from "../checkpoints/get.ts";
import type { Queries } from "../db/pool.ts";
import type { StoredPolicy } from "../egress/entry.ts";
import { ApiError } from "../errors/api-error.ts";
import { invalidField } from "../http/validation.ts";
import { openStateKey } from "../secrets/state-key.ts";
import { openCheckpointEnv } from "../secrets/variables.ts";
import { BASE_TEMPLATE } from "../templates/official.ts";
import { resolveTemplate, type SavedTemplate } from "../templates/resolve.ts";
import type { StartDeps } from "./deps.ts";

type StartRequest = Pick<ParsedSessionCreate, "from_checkpoint" | "template" | "size" | "env"> & {
  egress?: StoredPolicy;
  no_sudo?: boolean;
  secrets?: Record<string, string> | null;
};

const OPEN: StoredPolicy = { mode: "allow", allow: [] };

/** The columns of a new session that depend on its origin. */
export type StartSettings = Awaited<ReturnType<typeof startFromCheckpoint>>;

/** `refusal`: why the node cannot start the origin. Errors of the request are reported before this error. */
interface Start {
  start: StartSettings;
  refusal?: ApiError;
}

export async function startFrom(
  deps: StartDeps,
  tx: Queries,
  scope: Scope,
  request: StartRequest,
): Promise<Start> {
  return request.from_checkpoint == null
    ? await startFromTemplate(deps, tx, scope, request)
    : { start: await startFromCheckpoint(deps, tx, scope, request) };
}

async function startFromTemplate(
  deps: StartDeps,
  tx: Queries,
  scope: Scope,
  request: StartRequest,
): Promise<Start> {
  const template = request.template || BASE_TEMPLATE;
  const { version, saved, refusal } = await resolveTemplate(deps, tx, scope, template);
  const start = {
    size: saved ? sizeOfSaved(saved, request.size) : ((request.size ?? DEFAULT_SIZE) as Size),
    template,
    template_version: version,
    baseline: saved?.baseline ?? null,
    origin_snapshot_id: saved?.snapshotId ?? null,
    origin_checkpoint_id: null,
    env: request.env ?? {},
    egress: JSON.stringify(request.egress ?? OPEN),
    no_sudo: request.no_sudo || saved?.noSudo || false,
    // The template of a session that may hold secrets has no memory.
    may_hold_secrets: false,
    stateKey: saved ? await openStateKey(deps.keyring, saved.row) : undefined,
    // No program of an image runs.
    may_keep_alive: Boolean(saved?.snapshotId),
  };
  return { start, refusal };
}

async function startFromCheckpoint({ keyring }: StartDeps, tx: Queries, scope: Scope, request: StartRequest) {
  const asked = { field: "from_checkpoint", lock: true };
  const checkpoint = await getCheckpoint(tx, scope, request.from_checkpoint ?? "", asked);
  return {
    size: sizeOf("checkpoint", checkpoint.size as Size, request.size),
    template: checkpoint.template,
    template_version: checkpoint.template_version,
    baseline: checkpoint.baseline,
    origin_snapshot_id: checkpoint.id as string | null,
    origin_checkpoint_id: checkpoint.id as string | null,
    env: joinEnv(await openCheckpointEnv(keyring, checkpoint), request),
    egress: JSON.stringify(request.egress ?? checkpoint.egress),
    // `no_sudo` cannot be undone: a guest without sudo has no way to get it back.
    no_sudo: request.no_sudo || checkpoint.no_sudo,
    may_hold_secrets: checkpoint.may_hold_secrets,
    stateKey: await openStateKey(keyring, checkpoint),
    may_keep_alive: true,
  };
}

/** A template of an image can be started in each size in which it was baked. */
function sizeOfSaved({ snapshotId, sizes }: SavedTemplate, asked: string | null | undefined): Size {
  const [first = DEFAULT_SIZE] = sizes;
  if (snapshotId !== null) return sizeOf("template", first, asked);
  const size = asked ?? (sizes.includes(DEFAULT_SIZE) ? DEFAULT_SIZE : first);
  if (isSize(size) && sizes.includes(size)) return size;
  throw new ApiError(
    "size_unavailable",
    `size: the template was not made for ${size}; available: ${sizes.join(", ")}`,
  );
}

/** A saved state can only be started in its own size. */
function sizeOf(what: string, size: Size, asked: string | null | undefined): Size {
  if (asked == null || asked === size) return size;
  throw invalidField(
    "size",
    `must be ${JSON.stringify(size)}, the size of the ${what}, or be left out`,
    asked,
  );
}

/** The checkpoint's variables and those of the request, under the rules for `env` and `secrets` of one request. */
function joinEnv(saved: Record<string, string>, request: StartRequest): Record<string, string> {
  const env = { ...saved, ...request.env };
  const secrets = request.secrets ?? {};
  const twice = Object.keys(secrets).find((key) => Object.hasOwn(env, key));
  if (twice !== undefined)
    throw invalidField(`secrets.${twice}`, "must not be in env as well, and the checkpoint's env has it");
  if (variablesBytes(env) + variablesBytes(secrets) <= LIMITS.envTotalBytes) return env;
  throw invalidField(
    "env",
    `must be at most ${LIMITS.envTotalBytes} bytes together with the checkpoint's and with secrets`,
  );
}

export function mapOrNull(map: Record<string, string> | null | undefined): string | null {
  return map && Object.keys(map).length > 0 ? JSON.stringify(map) : null;
}
