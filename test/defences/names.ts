/** Defences of names. */
import type { Defence } from "./defence.ts";

const DNS = "packages/gateway/src/dns";
const EGRESS = "packages/gateway/src/egress";
const NETWORK = "packages/node/src/network";

const isNeverInResolver = {
  file: `${DNS}/resolver.ts`,
  text: "if (found.addresses.some((address) => this.#deps.tables.isNever(address))) {",
  instead: "if (false) {",
};

export const names: Defence[] = [
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
        instead: "if (question.type !== TYPE.A) return passOn(deps, slot, question);",
      },
    ],
    file: `${DNS}/listen.test.ts`,
    test: "an allowed name has nothing but addresses, and nobody is asked for more",
  },
  {
    row: "DN-05",
    off: "the rate limit on questions over TCP",
    edits: [{ file: `${DNS}/listen.ts`, text: "if (waitMs > 0) await sleep(waitMs);", instead: "" }],
    file: `${DNS}/listen.test.ts`,
    test: "questions over TCP come to 50 a second after 200",
  },
  {
    row: "DN-05",
    off: "the rate limit on different names",
    edits: [
      {
        file: `${DNS}/name-rate-limit.ts`,
        text: "if (this.#names.size >= MAX_NAMES) return false;",
        instead: "",
      },
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
        text: "AbortSignal.timeout(limitMs)",
        instead: "AbortSignal.timeout(60_000)",
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
        text: 'if (deps.tables.isNever(address, flow.port)) throw new DialRefused("never_address");',
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
