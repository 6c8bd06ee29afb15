/** Exposes a session's port to the outside, closes it, and opens it for `fetch`. */
import type {
  Exposed,
  ExposeRequest,
  PreviewAuth,
  PreviewVisibility,
  SessionRecord,
  Unexposed,
} from "@vivarium/contract/api";
import { VivariumError } from "../errors.ts";
import { type CallOptions, getJson, postJson, sessionPath, type Transport } from "../transport.ts";
import { Preview } from "./preview.ts";

/** Settings of an exposed port. An omitted field gets its default, whatever it was before. */
export interface ExposeOptions extends CallOptions {
  /** `token` (default): only visitors with the token of the URL; `public`: everyone. */
  visibility?: PreviewVisibility;
  /** `bearer`: requests must carry `auth_token` as well. Default: `none`. */
  auth?: PreviewAuth;
  /** URL to which browsers without access are redirected. Default: they get a 401 or 404 page. */
  loginUrl?: string;
  /** Whether to make new tokens; the old tokens are invalid when the promise resolves. */
  rotate?: boolean;
}

/** Values that `preview` cannot read from the session's record. */
export interface PreviewOptions extends CallOptions {
  /** The bearer token (`auth_token`) of a port with `auth: "bearer"`. */
  authToken?: string;
  /** The port's login URL, if it has one: the record does not contain it, and without this field it is removed. */
  loginUrl?: string;
}

/** Is repeated when its answer was lost: the port is then exposed already, and the answer is `unchanged`. */
export function exposePort(
  transport: Transport,
  sessionId: string,
  port: number,
  { visibility, auth, loginUrl, rotate, signal }: ExposeOptions,
): Promise<Exposed> {
  const body: ExposeRequest = { port, visibility, auth, login_url: loginUrl, rotate };
  return postJson(transport, sessionPath(sessionId, "/expose"), body, { signal, repeatable: true });
}

export async function unexposePort(
  transport: Transport,
  sessionId: string,
  port: number,
  options: CallOptions,
): Promise<boolean> {
  const path = sessionPath(sessionId, "/unexpose");
  return (await postJson<Unexposed>(transport, path, { port }, { ...options, repeatable: true })).ok;
}

/** Exposes the port again with the settings that it has, to get its URL and token without changing them. */
export async function openPreview(
  transport: Transport,
  sessionId: string,
  port: number,
  { authToken, loginUrl, signal }: PreviewOptions,
): Promise<Preview> {
  const record = await getJson<SessionRecord>(transport, sessionPath(sessionId), { signal });
  const known = record.exposed_previews?.find((preview) => preview.port === port);
  if (known?.auth === "bearer" && authToken === undefined) {
    throw new VivariumError(
      "bearer_unknown",
      `port ${port} of session ${sessionId} wants a bearer token, which was told when it was made; expected it as authToken`,
    );
  }
  const settings = { visibility: known?.visibility, auth: known?.auth, loginUrl, signal };
  const exposed = await exposePort(transport, sessionId, port, settings);
  return new Preview(exposed, exposed.auth === "bearer" ? (exposed.auth_token ?? authToken) : undefined);
}
