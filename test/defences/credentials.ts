/** Defences of credentials: Connections, secrets, keys and tokens. */
import type { Defence } from "./defence.ts";

const CONNECTIONS = "packages/gateway/src/connections";
const CONTROL = "packages/control/src";

export const credentials: Defence[] = [
  {
    row: "C6.2",
    off: "that a session's Connections are its own",
    edits: [
      {
        file: `${CONNECTIONS}/bound-connections.ts`,
        text: "return this.#sessions.get(sessionId)?.origins.get(host);",
        instead: "return [...this.#sessions.values()].map(({ origins }) => origins.get(host)).find(Boolean);",
      },
      {
        file: `${CONNECTIONS}/bound-connections.ts`,
        text: 'if (!session) throw new Error("the session has no Connections any more");',
        instead: "if (!session) return await [...this.#sessions.values()][0]!.leaves.contextFor(host);",
      },
    ],
    file: `${CONNECTIONS}/interceptor.test.ts`,
    test: "another session at the same host sees the origin's own certificate, and its requests have no credential",
  },
  {
    row: "C-10",
    off: "that a request is for the host of its connection",
    edits: [
      {
        file: `${CONNECTIONS}/judge-request.ts`,
        text: 'if (authorities.length !== 1 || !isAuthority(authorities[0] ?? "", host)) {',
        instead: "if (authorities.length !== 1) {",
      },
    ],
    file: `${CONNECTIONS}/interceptor.test.ts`,
    test: "another Host",
  },
  {
    row: "C-04",
    off: "the rules on methods",
    edits: [
      {
        file: `${CONNECTIONS}/judge-request.ts`,
        text: "if (!rule || !methods.has(head.method)) {",
        instead: "if (!rule) {",
      },
    ],
    file: `${CONNECTIONS}/interceptor.test.ts`,
    test: "of another path or method is refused with 403, and nothing reaches the origin",
  },
  {
    row: "C-04",
    off: "the rules on paths",
    edits: [
      {
        file: `${CONNECTIONS}/judge-request.ts`,
        text: "const rule = findRule(rules, path);",
        instead: "const rule = findRule(rules, path) ?? rules[0];",
      },
    ],
    file: `${CONNECTIONS}/interceptor.test.ts`,
    test: "of another path or method is refused with 403, and nothing reaches the origin",
  },
  {
    row: "C-04",
    off: "that a path has no dot segments",
    edits: [
      {
        file: `${CONNECTIONS}/path-rules.ts`,
        text: "if (/[\\\\;]|\\/\\/|\\/\\.{1,2}(?:\\/|$)/.test(path)) return false;",
        instead: "",
      },
    ],
    file: `${CONNECTIONS}/interceptor.test.ts`,
    test: "dot segments",
  },
  {
    row: "C-04",
    off: "that the escapes of a path are UTF-8",
    edits: [{ file: `${CONNECTIONS}/path-rules.ts`, text: " && hasUtf8Escapes(path)", instead: "" }],
    file: `${CONNECTIONS}/path-rules.test.ts`,
    test: "/a/%c0%ae%c0%ae/b",
  },
  {
    row: "C-04",
    off: "the drop of headers that name another method, path or client",
    edits: [{ file: `${CONNECTIONS}/pass-headers.ts`, text: "OVERRIDES.has(name) || ", instead: "" }],
    file: `${CONNECTIONS}/interceptor.test.ts`,
    test: "headers that name another method, path, client or proxy are dropped, others pass",
  },
  {
    row: "C-02",
    off: "the drop of the guest's own copies of the header",
    edits: [
      { file: `${CONNECTIONS}/pass-headers.ts`, text: "name === canonical(injected) || ", instead: "" },
    ],
    file: `${CONNECTIONS}/interceptor.test.ts`,
    test: "in the same case is dropped, and the origin sees ours alone",
  },
  {
    row: "C-02",
    off: "that marks in a header's name count as the same",
    edits: [
      {
        file: `${CONNECTIONS}/pass-headers.ts`,
        text: '.replaceAll(/[^a-z0-9]/g, "-")',
        instead: '.replaceAll("_", "-")',
      },
    ],
    file: `${CONNECTIONS}/interceptor.test.ts`,
    test: "as X.Api.Key is dropped as well",
  },
  {
    row: "C6.6",
    off: "the end of a body that carries the credential",
    edits: [{ file: `${CONNECTIONS}/guarded-body.ts`, text: "if (isHit) {", instead: "if (false) {" }],
    file: `${CONNECTIONS}/reflection.test.ts`,
    test: "as it is",
  },
  {
    row: "C6.6",
    off: "the search with escapes decoded",
    edits: [
      {
        file: `${CONNECTIONS}/secret-scan.ts`,
        text: "for (const reading of this.#decoded) {",
        instead: "for (const reading of this.#decoded.slice(2)) {",
      },
    ],
    file: `${CONNECTIONS}/reflection.test.ts`,
    test: "percent-escaped",
  },
  {
    row: "C6.6",
    off: "the search of headers",
    edits: [
      {
        file: `${CONNECTIONS}/pass-headers.ts`,
        text: "passed.filter(([name, value]) => !isSecret(name) && !isSecret(value))",
        instead: "passed.filter(() => true)",
      },
    ],
    file: `${CONNECTIONS}/reflection.test.ts`,
    test: "at the head of an answer",
  },
  {
    row: "C6.6",
    off: "the end of a Connection whose origin hands the credential out",
    edits: [
      {
        file: `${CONNECTIONS}/origin.ts`,
        text: "if (this.#reflections >= MAX_REFLECTIONS && this.#active)",
        instead: "if (false)",
      },
    ],
    file: `${CONNECTIONS}/reflection.test.ts`,
    test: "the third answer with the credential suspends the Connection, until it is replaced",
  },
  {
    row: "C6.6",
    off: "the decoding of bodies",
    edits: [
      {
        file: `${CONNECTIONS}/plain-body.ts`,
        text: 'return decoder ? { kind: "coded", decoder } : { kind: "unreadable" };',
        instead: 'return { kind: "unreadable" };',
      },
    ],
    file: `${CONNECTIONS}/reflection.test.ts`,
    test: "is decoded and searched: gzip",
  },
  {
    row: "C6.6",
    off: "the largest window of a decoder",
    edits: [
      {
        file: `${CONNECTIONS}/plain-body.ts`,
        text: "createZstdDecompress({ params: ZSTD_PARAMS })",
        instead: "createZstdDecompress()",
      },
    ],
    file: `${CONNECTIONS}/reflection.test.ts`,
    test: "in zstd with a window of 27 bits",
  },
  {
    row: "C6.6",
    off: "the turns of sessions in the search",
    edits: [
      {
        file: `${CONNECTIONS}/turns.ts`,
        text: "if (this.#waiting.size === 0 && this.#left > 0) {",
        instead: "if (true) {",
      },
    ],
    file: `${CONNECTIONS}/guarded-body.test.ts`,
    test: "a session's small answer is searched before the rest of another session's many large ones",
  },
  {
    row: "C6.6",
    off: "the most refused requests that stay open",
    edits: [
      {
        file: `${CONNECTIONS}/lingering.ts`,
        text: "if (oldest && this.#streams.size > MOST) {",
        instead: "if (oldest && false) {",
      },
    ],
    file: `${CONNECTIONS}/http2.test.ts`,
    test: "are at most 256 of a session: the oldest are reset",
  },
  {
    row: "C-09",
    off: "the look at who signed the origin's certificate",
    edits: [
      {
        file: `${CONNECTIONS}/upstream.ts`,
        text: "rejectUnauthorized: true }",
        instead: "rejectUnauthorized: false }",
      },
    ],
    file: `${CONNECTIONS}/hostile-origin.test.ts`,
    test: "self-signed",
  },
  {
    row: "C-09",
    off: "the look at the name in the origin's certificate",
    edits: [
      {
        file: `${CONNECTIONS}/upstream.ts`,
        text: "rejectUnauthorized: true }",
        instead: "rejectUnauthorized: true, checkServerIdentity: () => undefined }",
      },
    ],
    file: `${CONNECTIONS}/hostile-origin.test.ts`,
    test: "misnamed",
  },
  {
    row: "C-12",
    off: "the end of the lease",
    edits: [
      {
        file: `${CONNECTIONS}/bound-connections.ts`,
        text: "return performance.now() < this.#leasedUntil;",
        instead: "return true;",
      },
    ],
    file: `${CONNECTIONS}/revocation.test.ts`,
    test: "nothing is injected, and it is again once control is back; other traffic continues",
  },
  {
    row: "C-13",
    off: "the end of a Connection's time",
    edits: [
      {
        file: `${CONNECTIONS}/origin.ts`,
        text: 'if (this.#active && this.#active.expiresAt <= Date.now()) void this.end("expired");',
        instead: "",
      },
    ],
    file: `${CONNECTIONS}/revocation.test.ts`,
    test: "is cut in the middle of an answer, refused with 403, and works again once it is replaced",
  },
  {
    row: "C6.8",
    off: "that a revocation is final",
    edits: [
      {
        file: `${CONNECTIONS}/origin.ts`,
        text: 'if (this.#ended === "revoked" || bound.generation <= this.#generation) return;',
        instead: "if (bound.generation <= this.#generation) return;",
      },
    ],
    file: `${CONNECTIONS}/revocation.test.ts`,
    test: "stays revoked, whatever is pushed later",
  },
  {
    row: "C6.8",
    off: "that an origin that is no longer listed counts as revoked",
    edits: [
      {
        file: `${CONNECTIONS}/bound-connections.ts`,
        text: '...gone.map((origin) => origin.end("revoked")),',
        instead: "",
      },
    ],
    file: `${CONNECTIONS}/revocation.test.ts`,
    test: "is also one that is no longer listed, and one of a session that was dropped is bound no more",
  },
  {
    row: "C6.8",
    off: "the end of what is open under a Connection that was revoked",
    edits: [
      {
        file: `${CONNECTIONS}/origin.ts`,
        text: "[...this.#open].map((connection) => connection.destroy());",
        instead: "[] as Promise<void>[];",
      },
    ],
    file: `${CONNECTIONS}/revocation.test.ts`,
    test: "is closed at the origin and the guest when the call returns, and no further byte is sent",
  },
  {
    row: "C-07",
    off: "that the egress policy has the origin at the bind",
    edits: [
      {
        file: `${CONTROL}/connections/check.ts`,
        text: "if (!isCovered(against.policy, host))",
        instead: "if (false)",
      },
    ],
    file: `${CONTROL}/connections/connections.test.ts`,
    test: "a policy that does not cover the origin on 443 refuses it; a wildcard and port 443 cover it",
  },
  {
    row: "C-07",
    off: "the most that a session's Connections have together",
    edits: [
      {
        file: `${CONTROL}/connections/bind.ts`,
        text: "checkTotals(present, connection);",
        instead: "",
      },
    ],
    file: `${CONTROL}/connections/totals.test.ts`,
    test: "at a bind and at a replacement, whose own former secret does not count; a revoked one neither",
  },
  {
    row: "C-14",
    off: "that a session with an active Connection is not forked",
    edits: [
      {
        file: `${CONTROL}/saved-state/fork.ts`,
        text: "if (await hasActiveConnection(tx, session.id)) throw hasConnections();",
        instead: "",
      },
    ],
    file: `${CONTROL}/connections/connections.test.ts`,
    test: "a fork is 409 while a Connection is active; its children have none, and trust no authority",
  },
  {
    row: "Z-01",
    off: "the sealing of what the database keeps",
    edits: [
      {
        file: `${CONTROL}/access/sealed-bytes.ts`,
        text: "const nonce = randomBytes(NONCE_BYTES);",
        instead: "if (context !== undefined) return bytes; const nonce = randomBytes(NONCE_BYTES);",
      },
      {
        file: `${CONTROL}/access/sealed-bytes.ts`,
        text: "if (sealed[0] !== FORM || sealed.length < SEALED_OVERHEAD_BYTES)",
        instead: "if (context !== undefined) return sealed; if (sealed.length === 0)",
      },
    ],
    file: `${CONTROL}/secrets/secrets.test.ts`,
    test: "has neither secrets nor variables in the database as text",
  },
  {
    row: "Z-03",
    off: "that sealed bytes open in their place alone",
    edits: [
      {
        file: `${CONTROL}/secrets/data-key.ts`,
        text: "`v|1|${org}|${id}|${what}`",
        instead: "`v|1|${org.slice(0, 0)}${id.slice(0, 0)}${what.slice(0, 0)}`",
      },
    ],
    file: `${CONTROL}/secrets/moved-rows.test.ts`,
    test: "not with or for another session",
  },
  {
    row: "Z-03",
    off: "the registry in the seal of its credential",
    edits: [
      {
        file: `${CONTROL}/registries/seal.ts`,
        text: "`registry|${host}|${username}`",
        instead: "`registry|${host.slice(0, 0)}|${username}`",
      },
    ],
    file: `${CONTROL}/registries/registries.test.ts`,
    test: "does not open in a row whose registry was changed, which can be deleted all the same",
  },
  {
    row: "Z-03",
    off: "that sealed bytes are whole",
    edits: [
      {
        file: `${CONTROL}/access/sealed-bytes.ts`,
        text: "cipher.update(sealed.subarray(1 + NONCE_BYTES, -TAG_BYTES)), cipher.final()",
        instead: "cipher.update(sealed.subarray(1 + NONCE_BYTES, -TAG_BYTES))",
      },
    ],
    file: `${CONTROL}/secrets/moved-rows.test.ts`,
    test: "not with any bit changed",
  },
  {
    row: "Z-05",
    off: "that the end of a session destroys the key of its authority",
    edits: [
      {
        file: `${CONTROL}/connections/columns.ts`,
        text: "return endReason === undefined ? {} : { ca_key: null };",
        instead: "return endReason === undefined ? {} : {};",
      },
    ],
    file: `${CONTROL}/connections/connections.test.ts`,
    test: "the end of a session destroys its credentials and the key of its authority",
  },
  {
    row: "Z-07",
    off: "the mask over secrets in the commands that the audit log keeps",
    edits: [
      {
        file: `${CONTROL}/audit/capture.ts`,
        text: "text.replaceAll(secret, MASK)",
        instead: "text.replaceAll(secret, secret)",
      },
    ],
    file: `${CONTROL}/audit/capture.test.ts`,
    test: "masks the values of secrets, the longer ones first",
  },
  {
    row: "T-05",
    off: "the rights of a scoped token",
    edits: [
      {
        file: `${CONTROL}/http/capabilities.ts`,
        text: "if (!needed.some((one) => token.capabilities.includes(one)))",
        instead: "if (false)",
      },
    ],
    file: `${CONTROL}/tokens/tokens.test.ts`,
    test: "view reaches what the table says, and nothing else",
  },
  {
    row: "T-05",
    off: "that a scoped token is for its own session",
    edits: [
      {
        file: `${CONTROL}/http/capabilities.ts`,
        text: "if (isOfSession && (request.params as { id?: string }).id !== token.id) throw new SessionNotFound();",
        instead: "",
      },
    ],
    file: `${CONTROL}/tokens/tokens.test.ts`,
    test: "another session looks as if there were none, for every endpoint of a session",
  },
  {
    row: "C9",
    off: "the sum in a key",
    edits: [
      {
        file: `${CONTROL}/access/api-key.ts`,
        text: " && body.endsWith(sumOf(body.slice(0, RANDOM_CHARS)))",
        instead: "",
      },
    ],
    file: `${CONTROL}/keys/keys.test.ts`,
    test: "a text with one other character has not the sum of a key",
  },
];
