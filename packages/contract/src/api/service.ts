import { z } from "zod";

/** Body of every non-2xx answer (interface "Errors"): these two fields and no other. */
export const ErrorBody = z.object({ error: z.string(), code: z.string() }).meta({ id: "Error" });
export type ErrorBody = z.infer<typeof ErrorBody>;

/** `GET /v1/healthz` (wire.md 3.1). */
export const CheckResult = z.enum(["ok", "warn", "fail", "off"]);
export type CheckResult = z.infer<typeof CheckResult>;

export const Health = z
  .object({
    status: z.enum(["ok", "degraded"]),
    version: z.string(),
    isolation: z.enum(["kvm", "emulated"]),
    checks: z.object({
      store: CheckResult,
      runtime: CheckResult,
      images: CheckResult,
      disk: CheckResult,
      secrets_key: CheckResult,
      cold_tier: CheckResult,
    }),
  })
  .meta({ id: "Health" });
export type Health = z.infer<typeof Health>;
