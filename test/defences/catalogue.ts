/**
 * What defends previews, names and flows, and how to take each away: rows of security.md D7, D8 and D10. Without it the
 * test beside the code that is named here must fail; were it to pass, it would not notice an attack.
 */
import type { Edit } from "./without.ts";

export interface Defence {
  row: string;
  /** What is taken away. */
  off: string;
  edits: Edit[];
  /** A test file and a test in it that stands for the row. */
  file: string;
  test: string;
}

const DNS = "packages/gateway/src/dns";
const EGRESS = "packages/gateway/src/egress";
const PREVIEWS = "packages/gateway/src/previews";
const NETWORK = "packages/node/src/network";
const CAPS = "packages/control/src/egress";

const isNeverInResolver = {
  file: `${DNS}/resolver.ts`,
  text: "if (found.addresses.some((address) => this.#deps.tables.isNever(address))) {",
  instead: "if (false) {",
};

const names: Defence[] = [
  {
    row: "DN-01",
    off: "the look at what the addresses of a name are",
    edits: [isNeverInResolver],
    file: `${DNS}/listen.test.ts`,
    test: "of which one may never be reached are no addresses at all, in both modes",
  },
  {
    row: "DN-01",
    off: "the shortest time that an answer is good for",
    edits: [
      {
        file: `${DNS}/resolver.ts`,
        text: "addresses, ttlS: Math.max(ttlS, MIN_TTL_S) }",
        instead: "addresses, ttlS }",
      },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "are those at the end of the aliases",
  },
  {
    row: "DN-01",
    off: "the longest time that an answer is good for",
    edits: [{ file: `${DNS}/resolver.ts`, text: "let ttlS = MAX_TTL_S;", instead: "let ttlS = 2 ** 32;" }],
    file: `${DNS}/listen.test.ts`,
    test: "are those at the end of the aliases",
  },
  {
    row: "DN-02",
    off: "the count of questions in a message",
    edits: [{ file: `${DNS}/question.ts`, text: "questions !== 1 || ", instead: "" }],
    file: `${DNS}/listen.test.ts`,
    test: "65535 questions",
  },
  {
    row: "DN-02",
    off: "the longest message over UDP, and that nothing follows the question",
    edits: [
      {
        file: `${DNS}/listen.ts`,
        text: "message.length <= MAX_UDP_BYTES ? readQuestion(message) : null",
        instead: "readQuestion(message)",
      },
      { file: `${DNS}/question.ts`, text: "|| (additionals === 0 && end !== message.length)", instead: "" },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "600 bytes",
  },
  {
    row: "DN-04",
    off: "the silence about HTTPS and SVCB in mode allow",
    edits: [
      {
        file: `${DNS}/answer-question.ts`,
        text: "type === TYPE.AAAA || type === TYPE.HTTPS || type === TYPE.SVCB || type === TYPE.ANY",
        instead: "type === TYPE.AAAA",
      },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "every name is asked for, and has no IPv6 address and no hidden server names",
  },
  {
    row: "DN-04",
    off: "the silence about all but addresses in mode deny",
    edits: [
      {
        file: `${DNS}/answer-question.ts`,
        text: 'if (question.type !== TYPE.A) return noData(question, "name_allowed");',
        instead: "if (question.type !== TYPE.A) return passOn(deps, place, question);",
      },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "an allowed name has nothing but addresses, and nobody is asked for more",
  },
  {
    row: "DN-05",
    off: "the brake on questions over TCP",
    edits: [{ file: `${DNS}/listen.ts`, text: "if (waitMs > 0) await sleep(waitMs);", instead: "" }],
    file: `${DNS}/listen.test.ts`,
    test: "questions over TCP come to 50 a second after 200",
  },
  {
    row: "DN-05",
    off: "the brake on different names",
    edits: [
      { file: `${DNS}/name-brake.ts`, text: "if (this.#names.size >= MAX_NAMES) return false;", instead: "" },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "5,000 different names are asked for in an hour, and names asked before after that too",
  },
  {
    row: "DN-06",
    off: "the look at an answer's id",
    edits: [
      {
        file: `${DNS}/ask-upstream.ts`,
        text: "|| answer.readUInt16BE(0) !== message.readUInt16BE(0)",
        instead: "",
      },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "that answers with another id makes for a failure within 5 seconds",
  },
  {
    row: "DN-06",
    off: "the look at the question that is answered",
    edits: [
      {
        file: `${DNS}/ask-upstream.ts`,
        text: "return isResponse && sameQuestion;",
        instead: "return isResponse;",
      },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "that answers another question makes for a failure within 5 seconds",
  },
  {
    row: "DN-06",
    off: "the end of the wait for a name server",
    edits: [
      {
        file: `${DNS}/ask-upstream.ts`,
        text: "const ATTEMPT_MS = 1_400;",
        instead: "const ATTEMPT_MS = 60_000;",
      },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "that is silent makes for a failure within 5 seconds",
  },
  {
    row: "DN-06",
    off: "what keeps the answers of machines apart",
    edits: [
      {
        file: `${DNS}/resolver.ts`,
        text: "await this.#find(this.#known.of(machineId), name)",
        instead: 'await this.#find(this.#known.of("everybody"), name)',
      },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "are kept for their time, for the machine that asked alone",
  },
  {
    row: "DN-07",
    off: "the end of an opened address",
    edits: [{ file: `${NETWORK}/ruleset.ts`, text: "timeout ${element.ttlS}s", instead: "timeout 70m" }],
    file: `${NETWORK}/ruleset.test.ts`,
    test: "opens a pinned address on its port alone, for as long as the pin lasts",
  },
  {
    row: "N-18",
    off: "both looks at an address before it is dialled",
    edits: [
      isNeverInResolver,
      {
        file: `${EGRESS}/dial.ts`,
        text: 'if (deps.tables.isNever(address)) throw new DialRefused("never_address");',
        instead: "",
      },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "is not dialled when a name moves there after it was found good, a thousand times",
  },
  {
    row: "done-when 2",
    off: "the policy on names in mode deny",
    edits: [
      {
        file: `${DNS}/answer-question.ts`,
        text: "name === null || ports.size === 0",
        instead: "name === null",
      },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "a name outside the policy is refused without a question to anybody, whatever is asked about it",
  },
];

const flows: Defence[] = [
  {
    row: "N-04",
    off: "the policy on names of connections",
    edits: [
      { file: `${EGRESS}/flow.ts`, text: "if (!isAllowed) return this.#deny(reason, host);", instead: "" },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "for a name outside the policy",
  },
  {
    row: "N-04",
    off: "that an entry opens its own name alone",
    edits: [
      {
        file: `${EGRESS}/rules.ts`,
        text: "[rules.exact.get(name), ...",
        instead: "[rules.exact.get(name), ...parentsOf(name).map((parent) => rules.exact.get(parent)), ...",
      },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "for a name below it",
  },
  {
    row: "N-05",
    off: "that a wildcard does not open the name itself",
    edits: [
      {
        file: `${EGRESS}/rules.ts`,
        text: "...parentsOf(name).map((parent)",
        instead: "...[name, ...parentsOf(name)].map((parent)",
      },
    ],
    file: `${EGRESS}/rules.test.ts`,
    test: "does not open example.com",
  },
  {
    row: "N-08",
    off: "that a connection is for one host",
    edits: [
      {
        file: `${EGRESS}/http-front.ts`,
        text: "if (bound !== undefined && bound !== head.host) {",
        instead: "if (false) {",
      },
    ],
    file: `${EGRESS}/http-front.test.ts`,
    test: "is for the same host, though the policy has another one too",
  },
  {
    row: "N-08",
    off: "that target and Host agree",
    edits: [
      {
        file: `${EGRESS}/http-request.ts`,
        text: "if (target.host !== undefined && target.host !== host) {",
        instead: "if (false) {",
      },
    ],
    file: `${EGRESS}/http-front.test.ts`,
    test: "a target that differs",
  },
  {
    row: "N-08",
    off: "that there is one Host",
    edits: [{ file: `${EGRESS}/http-request.ts`, text: "if (hosts.length > 1)", instead: "if (false)" }],
    file: `${EGRESS}/http-front.test.ts`,
    test: "two hosts",
  },
  {
    row: "N-08",
    off: "that a length is given in one way",
    edits: [
      {
        file: `${EGRESS}/http-request.ts`,
        text: "if (lengths.length > 0 && codings.length > 0)",
        instead: "if (false)",
      },
    ],
    file: `${EGRESS}/http-request.test.ts`,
    test: "length and coding",
  },
  {
    row: "N-09",
    off: "the longest hello",
    edits: [{ file: `${EGRESS}/client-hello.ts`, text: "expect(whole <= MAX_HELLO_BYTES);", instead: "" }],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "for a hello of 40 KiB",
  },
  {
    row: "N-09",
    off: "that a hello has one name",
    edits: [{ file: `${EGRESS}/client-hello.ts`, text: "expect(list.isAtEnd());", instead: "" }],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "for two names",
  },
  {
    row: "N-09",
    off: "the end of the wait for a hello",
    edits: [
      {
        file: `${EGRESS}/tls-front.ts`,
        text: "setTimeout(onGone, HELLO_MS)",
        instead: "setTimeout(onGone, 60_000)",
      },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "when the hello does not come whole within its time",
  },
  {
    row: "N-12",
    off: "the look for numbers that are addresses",
    edits: [{ file: `${CAPS}/entry.ts`, text: "refuse(NUMBERS);", instead: ";" }],
    file: `${CAPS}/entry.test.ts`,
    test: "2130706433",
  },
  {
    row: "N-12",
    off: "the look for private addresses",
    edits: [{ file: `${CAPS}/entry.ts`, text: "if (range !== undefined)\n", instead: "if (false)\n" }],
    file: `${CAPS}/entry.test.ts`,
    test: "169.254.169.254",
  },
  {
    row: "N-12",
    off: "the look for public suffixes",
    edits: [
      { file: `${CAPS}/entry.ts`, text: 'if (isSuffix || !base.includes("."))', instead: "if (false)" },
    ],
    file: `${CAPS}/entry.test.ts`,
    test: "*.co.uk",
  },
  {
    row: "N-13",
    off: "the generation that an open flow must have, in the kernel",
    edits: [
      {
        file: `${NETWORK}/ruleset.ts`,
        text: "ct mark ${mark} ct state established,related goto granted",
        instead: "ct state established,related goto granted",
      },
    ],
    file: `${NETWORK}/networks.test.ts`,
    test: "ends the flow that it revokes and leaves the one that it allows, whoever speaks first",
  },
  {
    row: "N-13",
    off: "the second look at flows through the gateway when tables change",
    edits: [
      {
        file: `${EGRESS}/open-flows.ts`,
        text: "deps.tables.subscribe(() => this.#judgeAgain());",
        instead: "",
      },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "ends flows that are no longer allowed before it counts, and leaves the others alone",
  },
  {
    row: "N-13",
    off: "the same for requests over HTTP",
    edits: [
      {
        file: `${EGRESS}/open-flows.ts`,
        text: "deps.tables.subscribe(() => this.#judgeAgain());",
        instead: "",
      },
    ],
    file: `${EGRESS}/http-front.test.ts`,
    test: "a change of tables ends an idle connection and one that is being answered",
  },
  {
    row: "N-13",
    off: "the look at what holds now, once a name is resolved",
    edits: [
      {
        file: `${EGRESS}/open-flows.ts`,
        text: "deps.tables.subscribe(() => this.#judgeAgain());",
        instead: "",
      },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "counts also for a flow whose name is still being resolved",
  },
  {
    row: "N-16",
    off: "the quota in the kernel",
    edits: [
      {
        file: `${NETWORK}/ruleset.ts`,
        text: 'quota name "cap" add @capped { ip saddr } goto cut',
        instead: "",
      },
    ],
    file: `${NETWORK}/networks.test.ts`,
    test: "lets bytes out up to the limit, to the packet, and goes on from there when it is raised",
  },
  {
    row: "N-16",
    off: "what a session's other machines sent on the day",
    edits: [{ file: `${CAPS}/limit.ts`, text: "Math.max(0, capBytes - others)", instead: "capBytes" }],
    file: `${CAPS}/cap.test.ts`,
    test: "a paused session takes a cap without waking, and wakes with what is left of its day",
  },
  {
    row: "N-16",
    off: "that a day's figure only grows",
    edits: [
      {
        file: `${CAPS}/usage-store.ts`,
        text: "egress_last = greatest(egress_usage.egress_last, excluded.egress_last)",
        instead: "egress_last = excluded.egress_last",
      },
    ],
    file: `${CAPS}/cap.test.ts`,
    test: "today's figure never decreases, whatever a machine's counter says",
  },
  {
    row: "N-16",
    off: "that a day begins where the last one ended",
    edits: [
      {
        file: `${CAPS}/usage-store.ts`,
        text: "coalesce(earlier.egress_last, 0), greatest(seen.egress",
        instead: "0, greatest(seen.egress",
      },
    ],
    file: `${CAPS}/cap.test.ts`,
    test: "a session that sent its day's bytes stays live and is marked once a day; the new day gives it all of its cap",
  },
  {
    row: "N-17",
    off: "the most flows of a machine through the gateway",
    edits: [
      { file: `${EGRESS}/open-flows.ts`, text: "if (flows.size >= MAX_FLOWS) {", instead: "if (false) {" },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "a machine has at most 512 flows, and another one's are not counted with them",
  },
  {
    row: "N-17",
    off: "the most requests ahead of their turn on a connection",
    edits: [
      {
        file: `${EGRESS}/open-flows.ts`,
        text: "if (flow.unanswered >= MAX_UNANSWERED) return false;",
        instead: "",
      },
    ],
    file: `${EGRESS}/sent-ahead.test.ts`,
    test: "wait in line up to 16; with one more the connection is cut",
  },
  {
    row: "N-17",
    off: "the most requests ahead of their turn of a machine",
    edits: [
      {
        file: `${EGRESS}/open-flows.ts`,
        text: "return sentAhead < MAX_SENT_AHEAD;",
        instead: "return true;",
      },
    ],
    file: `${EGRESS}/sent-ahead.test.ts`,
    test: "are at most 512 ahead of their turn for all connections of a machine",
  },
];

const anybodyIsLetIn = {
  file: `${PREVIEWS}/gate.ts`,
  text: 'return byCookie ? "cookie" : "none";',
  instead: 'return byCookie ? "cookie" : "public";',
};

const previews: Defence[] = [
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
    test: "is the same to the byte for whatever must not be told, and wakes nothing",
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
    test: "is the same to the byte for whatever must not be told, and wakes nothing",
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
    row: "P-05",
    off: "the end of what an earlier version let in",
    edits: [
      {
        file: `${PREVIEWS}/flows.ts`,
        text: 'if (route?.version !== flow.version) return "over";',
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
      { file: `${PREVIEWS}/hygiene.ts`, text: "lengths.length + codings.length > 1 ||", instead: "" },
      {
        file: `${PREVIEWS}/hygiene.ts`,
        text: 'codings.some((coding) => isOld || coding.trim().toLowerCase() !== "chunked") ||',
        instead: "",
      },
    ],
    file: `${PREVIEWS}/smuggling.test.ts`,
    test: "chunked after gzip is 400, the connection closes and nothing hidden is heard",
  },
  {
    row: "P-07",
    off: "that nothing follows an upgrade",
    edits: [{ file: `${PREVIEWS}/hygiene.ts`, text: "upgrade.head.length > 0 || ", instead: "" }],
    file: `${PREVIEWS}/smuggling.test.ts`,
    test: "with another request right behind it is 400",
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
        file: `${PREVIEWS}/pass.ts`,
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
      { file: `${PREVIEWS}/pass.ts`, text: "if (interim > MAX_INTERIM_ANSWERS) onTooMany();", instead: "" },
    ],
    file: `${PREVIEWS}/hostile-guest.test.ts`,
    test: "interim answers without an end is 502, and little of it was taken",
  },
  {
    row: "P-10",
    off: "that visitors share a wake",
    edits: [{ file: `${PREVIEWS}/wakes.ts`, text: "if (known) return known;", instead: "" }],
    file: `${PREVIEWS}/waking.test.ts`,
    test: "is woken once for a thousand visitors, who are all answered",
  },
  {
    row: "P-10",
    off: "the rest after a refusal",
    edits: [{ file: `${PREVIEWS}/wakes.ts`, text: "const REST_MS = 2_000;", instead: "const REST_MS = 0;" }],
    file: `${PREVIEWS}/waking.test.ts`,
    test: "whose wake is refused is 503 with Retry-After, and refusals make no storm of wakes",
  },
];

export const DEFENCES: Defence[] = [...names, ...flows, ...previews];
