/**
 * Credentials for registries of container images (docs/spec/registries.md). The body of a request is closed: a misspelt
 * field must not leave a secret in a place where nobody expects one.
 */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { named, plainText, text, timestamp } from "./wire-types.ts";

export const REGISTRY_CREDENTIAL_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

/** Body of `POST /v1/registry-credentials`. */
export const RegistryCredentialCreate = z
  .strictObject({
    name: z
      .string()
      .regex(
        REGISTRY_CREDENTIAL_NAME,
        "must be 1 to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit",
      ),
    /** `host` or `host:port`. Control normalises it. */
    registry_host: text().max(300, "must be at most 300 characters long"),
    username: plainText(1, LIMITS.registryUsernameChars).refine(
      (name) => !name.includes(":"),
      "must not contain a colon, which ends a user name where it is sent",
    ),
    secret: text()
      .min(1, "must not be empty")
      .max(LIMITS.registrySecretChars, `must be at most ${LIMITS.registrySecretChars} characters long`)
      .meta({ writeOnly: true }),
  })
  .meta({ id: "RegistryCredentialCreate" });
export type RegistryCredentialCreate = z.input<typeof RegistryCredentialCreate>;

/** Without the secret. */
export const RegistryCredential = named("RegistryCredential", {
  id: z.string(),
  name: z.string(),
  registry_host: z.string(),
  username: z.string(),
  secret_last4: z.string().optional().meta({
    description: "the last four characters of a secret of twelve or more, if they are visible",
  }),
  project_id: z.string().optional().meta({ description: "of the key that made it, if that is bound to one" }),
  created_at: timestamp,
  updated_at: timestamp,
});
export type RegistryCredential = z.infer<typeof RegistryCredential>;

/** Newest first. */
export const RegistryCredentialList = named("RegistryCredentialList", {
  credentials: z.array(RegistryCredential),
});
export type RegistryCredentialList = z.infer<typeof RegistryCredentialList>;
