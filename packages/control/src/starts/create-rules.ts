/** Rules for a create body beyond its schema. Pure. */
import { LIMITS, type ParsedSessionCreate } from "@vivarium/contract/api";
import { variablesBytes } from "@vivarium/contract/api/wire-types";
import type { OwnHosts } from "../egress/entry.ts";
import { normalPolicy, type StoredPolicy } from "../egress/entry.ts";
import { invalidField } from "../http/validation.ts";

export type CheckedCreate = Omit<ParsedSessionCreate, "egress"> & { egress?: StoredPolicy };

/** The body with its egress policy normalised for storage. */
export function checkCreate({ ownHosts }: { ownHosts: OwnHosts }, body: ParsedSessionCreate): CheckedCreate {
  checkCombinations(body);
  checkVariables(body);
  const { egress, ...rest } = body;
  return { ...rest, ...(egress && { egress: normalPolicy(egress, ownHosts, "egress.allow") }) };
}

function checkCombinations(body: ParsedSessionCreate): void {
  if (body.max_lifetime_ms && (body.paused_ttl_ms ?? 0) < 0) {
    throw invalidField(
      "paused_ttl_ms",
      "must not be negative together with max_lifetime_ms",
      body.paused_ttl_ms,
    );
  }
  const { on_pty_detach: policy, on_detach: alias } = body;
  if (policy && alias && policy !== alias) {
    throw invalidField("on_detach", `must equal on_pty_detach (${policy}), whose alias it is`, alias);
  }
  if (body.from_checkpoint != null && body.template) {
    throw invalidField("from_checkpoint", "must not be combined with template");
  }
}

function checkVariables({ env, secrets }: ParsedSessionCreate): void {
  if (!env || !secrets) return;
  const twice = Object.keys(secrets).find((key) => Object.hasOwn(env, key));
  if (twice !== undefined) throw invalidField(`secrets.${twice}`, "must not be in env as well");
  if (variablesBytes(env) + variablesBytes(secrets) > LIMITS.envTotalBytes) {
    throw invalidField("env", `must be at most ${LIMITS.envTotalBytes} bytes together with secrets`);
  }
}
