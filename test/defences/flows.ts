/** Defences of flows, policies and caps. */
import type { Defence } from "./defence.ts";

const EGRESS = "packages/gateway/src/egress";
const POLICY = "packages/gateway/src/policy";
const HTTP1 = "packages/http1/src";
const NETWORK = "packages/node/src/network";
const CAPS = "packages/control/src/egress";

export const flows: Defence[] = [
  {
    row: "N-04",
    off: "the policy on names of connections",
    edits: [
      {
        file: `${EGRESS}/guest-flow.ts`,
        text: "if (!isAllowed) return this.deny(reason, host);",
        instead: "",
      },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "for a name outside the policy",
  },
  {
    row: "N-04",
    off: "that an entry opens its own name alone",
    edits: [
      {
        file: `${POLICY}/rules.ts`,
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
        file: `${POLICY}/rules.ts`,
        text: "...parentsOf(name).map((parent)",
        instead: "...[name, ...parentsOf(name)].map((parent)",
      },
    ],
    file: `${POLICY}/rules.test.ts`,
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
        file: `${HTTP1}/strict-request.ts`,
        text: "if (lengths.length > 0 && codings.length > 0)",
        instead: "if (false)",
      },
    ],
    file: `${HTTP1}/strict-request.test.ts`,
    test: "length and coding",
  },
  {
    row: "N-08",
    off: "the look at a server's answer before it is written anew",
    edits: [{ file: `${HTTP1}/forward.ts`, text: "if (!isAnswer(answer)) {", instead: "if (false) {" }],
    file: `${EGRESS}/hostile-server.test.ts`,
    test: "a version that is not ours is an error for the guest, and the next request is answered",
  },
  {
    row: "N-08",
    off: "that a consent is one to a WebSocket",
    edits: [{ file: `${HTTP1}/forward.ts`, text: "|| !grantsWebSocket(answer)", instead: "" }],
    file: `${EGRESS}/hostile-server.test.ts`,
    test: "a consent to another protocol is an error for the guest, and the next request is answered",
  },
  {
    row: "N-08",
    off: "that an upgrade comes alone",
    edits: [
      {
        file: `${HTTP1}/upgrade.ts`,
        text: "if (pipelineOf(socket).unanswered > 0) return undefined;",
        instead: "",
      },
    ],
    file: `${HTTP1}/upgrade.test.ts`,
    test: "an upgrade behind a request that is not answered gets no response",
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
        text: "setTimeout(onGone, helloMs)",
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
    edits: [
      {
        file: `${CAPS}/entry.ts`,
        text: "if (range === undefined || isOpen(",
        instead: "if (true || isOpen(",
      },
    ],
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
    test: "ends the flow that it revokes and leaves the one that it allows, no matter which side sends first",
  },
  {
    row: "N-13",
    off: "the second look at flows through the gateway when tables change",
    edits: [
      {
        file: `${EGRESS}/guest-flows.ts`,
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
        file: `${EGRESS}/guest-flows.ts`,
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
        file: `${EGRESS}/guest-flows.ts`,
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
    test: "lets bytes out up to the limit, to the packet, and lets out more when the limit is raised",
  },
  {
    row: "N-16",
    off: "what a session's other machines sent on the day",
    edits: [{ file: `${CAPS}/prepare.ts`, text: "Math.max(0, capBytes - others)", instead: "capBytes" }],
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
      { file: `${EGRESS}/guest-flows.ts`, text: "if (flows.size >= MAX_FLOWS) {", instead: "if (false) {" },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "a machine has at most 512 flows, and another one's are not counted with them",
  },
  {
    row: "N-17",
    off: "the most requests ahead of their turn on a connection",
    edits: [
      {
        file: `${HTTP1}/pipelining.ts`,
        text: "if (this.#unanswered.size >= most) return false;",
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
        file: `${EGRESS}/guest-flows.ts`,
        text: "return sentAhead < MAX_SENT_AHEAD;",
        instead: "return true;",
      },
    ],
    file: `${EGRESS}/sent-ahead.test.ts`,
    test: "are at most 512 ahead of their turn for all connections of a machine",
  },
  {
    row: "on premises",
    off: "that an opening is for one port, in the rules",
    edits: [
      {
        file: `${NETWORK}/ruleset.ts`,
        text: "ct original ip daddr @never4 meta l4proto tcp ct original ip daddr . ct original proto-dst != @open4 goto refuse",
        instead: "",
      },
    ],
    file: `${NETWORK}/private-open.test.ts`,
    test: "is reached over TCP on the opened ports, and nothing else is",
  },
  {
    row: "on premises",
    off: "that an opening is for one port, in the gateway",
    edits: [
      {
        file: "packages/gateway/src/tables/current-tables.ts",
        text: "return this.#isNever(address, port);",
        instead: "return this.#isNever(address);",
      },
    ],
    file: `${EGRESS}/tls-front.test.ts`,
    test: "is not dialled on another port, nor is one beside it",
  },
];
