/** Defences of pulls of container images against registries, token services and those to which they redirect. */
import type { Defence } from "./defence.ts";

const OCI = "packages/oci/src";

export const images: Defence[] = [
  {
    row: "O-02",
    off: "that a token service is of the registry's domain",
    edits: [
      {
        file: `${OCI}/realm.ts`,
        text: `  if (!isSameDomain(url.hostname, origin.hostname)) throw refuse("of another domain");\n`,
        instead: "",
      },
    ],
    file: `${OCI}/realm.test.ts`,
    test: "https://registry.example.com may not name https://auth.example.org/token",
  },
  {
    row: "O-02",
    off: "that owners of names below a common suffix differ",
    edits: [
      { file: `${OCI}/realm.ts`, text: "allowPrivateDomains: true", instead: "allowPrivateDomains: false" },
    ],
    file: `${OCI}/realm.test.ts`,
    test: "https://owner.github.io may not name https://other.github.io/token",
  },
  {
    row: "O-02",
    off: "that a token service has HTTPS",
    edits: [
      {
        file: `${OCI}/realm.ts`,
        text: `  if (url.protocol !== "https:" && !isAtRegistry) throw refuse("without HTTPS");\n`,
        instead: "",
      },
    ],
    file: `${OCI}/authorization.test.ts`,
    test: "gets no connection: http://auth.example.com/token",
  },
  {
    row: "O-02",
    off: "that a token service's redirect is not followed",
    edits: [
      {
        file: `${OCI}/authorizer.ts`,
        text: "if (answer.status >= 300 && answer.status < 400)",
        instead: "if (false)",
      },
    ],
    file: `${OCI}/authorization.test.ts`,
    test: "gets none by a redirect either",
  },
  {
    row: "O-02",
    off: "that a credential stays with its origin",
    edits: [{ file: `${OCI}/redirects.ts`, text: "isOwn &&= here.origin === url.origin;", instead: "" }],
    file: `${OCI}/authorization.test.ts`,
    test: "to another host carries no credential",
  },
  {
    row: "O-02",
    off: "that a chain that comes back stays without a credential",
    edits: [{ file: `${OCI}/redirects.ts`, text: "isOwn &&= here", instead: "isOwn = here" }],
    file: `${OCI}/authorization.test.ts`,
    test: "that comes back brings none back",
  },
  {
    row: "O-01",
    off: "that redirects lead to HTTPS alone",
    edits: [
      {
        file: `${OCI}/redirects.ts`,
        text: `if (target.protocol !== "https:" && target.origin !== asked.origin)`,
        instead: "if (false)",
      },
    ],
    file: `${OCI}/authorization.test.ts`,
    test: "to http://169.254.169.254/latest/meta-data is not followed",
  },
  {
    row: "O-01",
    off: "that private addresses are not connected",
    edits: [{ file: `${OCI}/dial.ts`, text: "(address) => !mayDial(address, port)", instead: "() => false" }],
    file: `${OCI}/dial.test.ts`,
    test: "127.0.0.1 is not connected",
  },
  {
    row: "O-01",
    off: "that all addresses of a name are checked",
    edits: [{ file: `${OCI}/dial.ts`, text: "addresses.find((", instead: "addresses.slice(0, 1).find((" }],
    file: `${OCI}/dial.test.ts`,
    test: "one forbidden address among others spoils the answer",
  },
  {
    row: "O-01",
    off: "that the checked address is the connected one",
    edits: [
      {
        file: `${OCI}/dial.ts`,
        text: "connectToOne(host, port, addresses, signal)",
        instead: "connectToOne(host, port, await resolve(lookup, host), signal)",
      },
    ],
    file: `${OCI}/dial.test.ts`,
    test: "the address that was checked is the one that is connected",
  },
  {
    row: "O-04",
    off: "that a document of two types is refused",
    edits: [
      {
        file: `${OCI}/documents.ts`,
        text: "if (KEYS.some((key) => Object.hasOwn(document, key) !== own.includes(key)))",
        instead: "if (false)",
      },
    ],
    file: `${OCI}/hostile-documents.test.ts`,
    test: "that is an index, too",
  },
  {
    row: "O-04",
    off: "that an image without layers is refused",
    edits: [{ file: `${OCI}/resolve-image.ts`, text: "if (layers.length === 0)", instead: "if (false)" }],
    file: `${OCI}/hostile-documents.test.ts`,
    test: "without layers is refused",
  },
  {
    row: "O-05",
    off: "the limit of all layers' bytes",
    edits: [
      { file: `${OCI}/resolve-image.ts`, text: "if (bytes > limits.layerBytes)", instead: "if (false)" },
    ],
    file: `${OCI}/hostile-documents.test.ts`,
    test: "with too many bytes of layers",
  },
  {
    row: "O-06",
    off: "the digest of layers",
    edits: [
      {
        file: `${OCI}/fetch-blob.ts`,
        text: "  if (file.isRight) return;\n",
        instead: "  if (file.isRight || !wasKept) return;\n",
      },
    ],
    file: `${OCI}/hostile-transfer.test.ts`,
    test: "of other bytes is refused",
  },
  {
    row: "O-06",
    off: "the digest of manifests",
    edits: [
      {
        file: `${OCI}/resolve-image.ts`,
        text: "if (digest !== undefined) verifyBytes(what, bytes, digest);",
        instead: "",
      },
    ],
    file: `${OCI}/pull-image.test.ts`,
    test: "asks for a digest although a tag is given beside it",
  },
  {
    row: "O-06",
    off: "the end of a layer at its size",
    edits: [
      {
        file: `${OCI}/fetch-blob.ts`,
        text: "if (file.size + chunk.byteLength > blob.size)",
        instead: "if (false)",
      },
    ],
    file: `${OCI}/hostile-transfer.test.ts`,
    test: "that does not end is cut at its size",
  },
  {
    row: "O-07",
    off: "that a credential is for its registry",
    edits: [
      {
        file: `${OCI}/registry.ts`,
        text: "if (credential && normalRegistry(credential.registry) !== registry)",
        instead: "if (false)",
      },
    ],
    file: `${OCI}/authorization.test.ts`,
    test: "of another registry is not taken",
  },
];
