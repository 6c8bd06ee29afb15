/** Defences of previews. */
import type { Defence } from "./defence.ts";

const HTTP1 = "packages/http1/src";
const PREVIEWS = "packages/gateway/src/previews";

const anybodyIsLetIn = {
  file: `${PREVIEWS}/gate.ts`,
  text: 'return byCookie ? "cookie" : "none";',
  instead: 'return byCookie ? "cookie" : "public";',
};

export const previews: Defence[] = [
  {
    row: "P-01",
    off: "the one spelling of a port",
    edits: [{ file: `${PREVIEWS}/host.ts`, text: "([1-9][0-9]{0,4})-", instead: "([0-9]{1,6})-" }],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "a host that is not exactly that of a preview is the plain 404 or a 400, and never reaches a guest",
  },
  {
    row: "P-01",
    off: "that there is one Host",
    edits: [{ file: `${PREVIEWS}/visit.ts`, text: "hosts.length === 1 ?", instead: "hosts.length > 0 ?" }],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "a host that is not exactly that of a preview is the plain 404 or a 400, and never reaches a guest",
  },
  {
    row: "P-02",
    off: "the gate",
    edits: [anybodyIsLetIn],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "is the same to the byte for everything that must stay unknown, and wakes nothing",
  },
  {
    row: "P-02",
    off: "the silence about what is there",
    edits: [
      {
        file: `${PREVIEWS}/gate.ts`,
        text: 'return { is: hasBearer ? "hidden" : "unauthorized" };',
        instead: 'return { is: "unauthorized" };',
      },
    ],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "is the same to the byte for everything that must stay unknown, and wakes nothing",
  },
  {
    row: "P-02",
    off: "the gate, for WebSockets",
    edits: [anybodyIsLetIn],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "answers upgrades as well",
  },
  {
    row: "P-03",
    off: "what takes tokens out of the line",
    edits: [
      {
        file: `${PREVIEWS}/pass-headers.ts`,
        text: 'return route.visibility === "token" ? withoutTokens(visit.url) : visit.url;',
        instead: "return visit.url;",
      },
    ],
    file: `${PREVIEWS}/crossing.test.ts`,
    test: "has no token in its line, its cookies, its Referer or any header",
  },
  {
    row: "P-03",
    off: "what takes tokens out of the Referer",
    edits: [
      {
        file: `${PREVIEWS}/pass-headers.ts`,
        text: 'if (name === "referer") return [[name, withoutTokens(value)]];',
        instead: "",
      },
    ],
    file: `${PREVIEWS}/crossing.test.ts`,
    test: "has no token in its line, its cookies, its Referer or any header",
  },
  {
    row: "P-03",
    off: "what takes the gate's cookie out",
    edits: [
      {
        file: `${PREVIEWS}/pass-headers.ts`,
        text: 'if (name !== "cookie") return [[name, value]];',
        instead: "return [[name, value]];",
      },
    ],
    file: `${PREVIEWS}/crossing.test.ts`,
    test: "has no token in its line, its cookies, its Referer or any header",
  },
  {
    row: "P-03",
    off: "what keeps browsers from taking a link with a token for a page that they have",
    edits: [{ file: `${PREVIEWS}/pass-headers.ts`, text: '"no-vary-search",', instead: "" }],
    file: `${PREVIEWS}/crossing.test.ts`,
    test: "neither shows a kept page for a link with another token, nor reports such links",
  },
  {
    row: "P-05",
    off: "the end of what an earlier version let in",
    edits: [
      {
        file: `${PREVIEWS}/visitor-flows.ts`,
        text: 'if (route?.version !== version) return "over";',
        instead: 'if (route === undefined) return "over";',
      },
    ],
    file: `${PREVIEWS}/versions.test.ts`,
    test: "ends the URL, the cookie, the WebSocket and the answer under way, and those of no other route",
  },
  {
    row: "P-05",
    off: "the version in the seal of a cookie",
    edits: [
      {
        file: `${PREVIEWS}/gate-cookie.ts`,
        text: "${hostName}\\n${route.version}\\n${expires}",
        instead: "${hostName}\\n${expires}",
      },
    ],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "opens its own host in its own version and nothing else",
  },
  {
    row: "done-when 6",
    off: "the host in the seal of a cookie",
    edits: [
      {
        file: `${PREVIEWS}/gate-cookie.ts`,
        text: "${hostName}\\n${route.version}\\n${expires}",
        instead: "${route.version}\\n${expires}",
      },
    ],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "opens its own host in its own version and nothing else",
  },
  {
    row: "done-when 6",
    off: "the look at whose page opens a WebSocket",
    edits: [
      {
        file: `${PREVIEWS}/gate.ts`,
        text: "if (visit.isUpgrade) return origin === visit.host.origin;",
        instead: "if (visit.isUpgrade) return true;",
      },
    ],
    file: `${PREVIEWS}/versions.test.ts`,
    test: "by cookie needs this very preview as its Origin; by token it needs none",
  },
  {
    row: "done-when 6",
    off: "the look at whose page asks",
    edits: [
      {
        file: `${PREVIEWS}/gate.ts`,
        text: 'if (admission !== "cookie" || comesFromOwnPages(site, visit))',
        instead: "if (true)",
      },
    ],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "is not enough for what a page of another session asks; links from there work",
  },
  {
    row: "P-07",
    off: "that a request has one length, and the form of a length",
    edits: [
      {
        file: `${HTTP1}/strict-request.ts`,
        text: 'if (codings.some((value) => value.toLowerCase() !== "chunked"))',
        instead: "if (false)",
      },
    ],
    file: `${PREVIEWS}/smuggling.test.ts`,
    test: "chunked after gzip is 400, the connection closes and nothing hidden is heard",
  },
  {
    row: "P-07",
    off: "that nothing follows an upgrade",
    edits: [{ file: `${PREVIEWS}/strict-request.ts`, text: "upgrade.head.length > 0 || ", instead: "" }],
    file: `${PREVIEWS}/smuggling.test.ts`,
    test: "with another request right behind it is 400",
  },
  {
    row: "P-07",
    off: "that there is one Origin",
    edits: [
      {
        file: `${PREVIEWS}/strict-request.ts`,
        text: "NEVER_TWICE.some((name) => valuesOf(headers, name).length > 1) ||",
        instead: "",
      },
    ],
    file: `${PREVIEWS}/smuggling.test.ts`,
    test: "two Origins is 400, the connection closes and nothing hidden is heard",
  },
  {
    row: "P-08",
    off: "that there is one Authorization",
    edits: [
      {
        file: `${PREVIEWS}/gate.ts`,
        text: "return matchesHash(token, sha256) && values.length === 1;",
        instead: "return matchesHash(token, sha256);",
      },
    ],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "anything but one matching header is 401, before the token is looked at",
  },
  {
    row: "P-08",
    off: "what keeps the header that matched outside",
    edits: [
      {
        file: `${PREVIEWS}/pass-headers.ts`,
        text: 'if (name === "authorization" && origin.route.bearer_sha256 !== undefined) return [];',
        instead: "",
      },
    ],
    file: `${PREVIEWS}/gate.test.ts`,
    test: "both gates must open, and the header that matched stays outside",
  },
  {
    row: "P-09",
    off: "the longest head of a guest's answer",
    edits: [
      {
        file: `${HTTP1}/forward.ts`,
        text: "maxHeaderSize: MAX_ANSWER_HEADER_BYTES,",
        instead: "maxHeaderSize: 2 ** 30,",
      },
    ],
    file: `${PREVIEWS}/hostile-guest.test.ts`,
    test: "headers without an end is 502, and little of it was taken",
  },
  {
    row: "P-09",
    off: "the most interim answers",
    edits: [
      { file: `${HTTP1}/forward.ts`, text: "if (interim > MAX_INTERIM_ANSWERS)", instead: "if (false)" },
    ],
    file: `${PREVIEWS}/hostile-guest.test.ts`,
    test: "interim answers without an end is 502, and little of it was taken",
  },
  {
    row: "P-09",
    off: "the look at an answer before it is written anew",
    edits: [{ file: `${HTTP1}/forward.ts`, text: "if (!isAnswer(answer)) {", instead: "if (false) {" }],
    file: `${PREVIEWS}/hostile-guest.test.ts`,
    test: "a coding that is not taken off is 502",
  },
  {
    row: "P-09",
    off: "the deafness to what comes behind the end of a request",
    edits: [
      {
        file: `${HTTP1}/forward.ts`,
        text: "return !this.#isOver && !this.upstream.destroyed && !this.#exchange.response.headersSent;",
        instead: "return true;",
      },
    ],
    file: "test/fuzz/http-answers.test.ts",
    test: "answers end no connection but their own, and break no handler",
  },
  {
    row: "P-09",
    off: "that the phrase of a status is ours",
    edits: [
      {
        file: `${HTTP1}/forward.ts`,
        text: "sendHead(response, answer.statusCode ?? 502, headers);",
        instead: "response.writeHead(answer.statusCode ?? 502, answer.statusMessage, headers.flat());",
      },
    ],
    file: `${PREVIEWS}/hostile-guest.test.ts`,
    test: "and calls its status what nobody may send",
  },
  {
    row: "P-10",
    off: "that visitors share a wake",
    edits: [{ file: `${PREVIEWS}/shared-wakes.ts`, text: "if (known) return known;", instead: "" }],
    file: `${PREVIEWS}/waking.test.ts`,
    test: "is woken once for a thousand visitors, who are all answered",
  },
  {
    row: "P-10",
    off: "the rest after a refusal",
    edits: [
      { file: `${PREVIEWS}/shared-wakes.ts`, text: "const REST_MS = 2_000;", instead: "const REST_MS = 0;" },
    ],
    file: `${PREVIEWS}/waking.test.ts`,
    test: "whose wake is refused is 503 with Retry-After, and refusals make no storm of wakes",
  },
];
