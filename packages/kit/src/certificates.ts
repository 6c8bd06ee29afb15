/**
 * Makes certificate authorities of one purpose and the server certificates that they sign: ECDSA with P-256, short lives,
 * random serial numbers. Keys and certificates are PEM texts.
 */
import "reflect-metadata";
import { createHash, randomBytes, webcrypto } from "node:crypto";
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  Extension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from "@peculiar/x509";

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
const USAGES: ("sign" | "verify")[] = ["sign", "verify"];
/** Clocks of clients may be behind. */
const EARLIER_MS = 3_600_000;
/** A common name is at most this long (RFC 5280). */
const MAX_COMMON_NAME = 64;

/** Name constraints (RFC 5280 4.2.1.10) that exclude every IPv4 and IPv6 address: the authority signs names only. */
const NO_ADDRESSES = Buffer.concat([
  Buffer.from([0x30, 0x32, 0xa1, 0x30]),
  ...[8, 32].map((size) => Buffer.from([0x30, size + 2, 0x87, size, ...Buffer.alloc(size)])),
]);

export interface KeyPair {
  certificatePem: string;
  keyPem: string;
}

/** Makes an authority that signs server certificates for names, and no further authority. */
export async function makeAuthority(input: { name: string; notAfter: Date }): Promise<KeyPair> {
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, USAGES);
  const subject = [{ CN: [input.name] }];
  const certificate = await X509CertificateGenerator.create({
    serialNumber: randomSerial(),
    subject,
    issuer: subject,
    notBefore: new Date(Date.now() - EARLIER_MS),
    notAfter: input.notAfter,
    signingAlgorithm: ALGORITHM,
    publicKey: keys.publicKey,
    signingKey: keys.privateKey,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new Extension("2.5.29.30", true, NO_ADDRESSES),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certificatePem: `${certificate.toString("pem")}\n`, keyPem: await exportKey(keys.privateKey) };
}

/**
 * Name of an authority's certificate in a directory of hashed certificates, without `.0`: 8 hex digits (`openssl x509
 * -subject_hash`), of a subject that has this common name alone. OpenSSL hashes names in lower case and as UTF-8.
 */
export function subjectHash(name: string): string {
  const der = (tag: number, content: Buffer) => Buffer.concat([Buffer.from([tag, content.length]), content]);
  const commonNameId = Buffer.from([0x06, 0x03, 0x55, 0x04, 0x03]);
  const value = der(0x0c, Buffer.from(name.toLowerCase()));
  const digest = createHash("sha1")
    .update(der(0x31, der(0x30, Buffer.concat([commonNameId, value]))))
    .digest();
  return digest.readUInt32LE(0).toString(16).padStart(8, "0");
}

/** Signs a server certificate for exactly this name. It ends after `lifeMs`, and with its authority at the latest. */
export async function signServer(
  authority: KeyPair,
  input: { host: string; lifeMs: number },
): Promise<KeyPair> {
  const issuer = new X509Certificate(authority.certificatePem);
  const signingKey = await importKey(authority.keyPem);
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, USAGES);
  const now = Date.now();
  const certificate = await X509CertificateGenerator.create({
    serialNumber: randomSerial(),
    subject: [{ CN: [commonName(input.host)] }],
    issuer: issuer.subjectName,
    notBefore: new Date(now - EARLIER_MS),
    notAfter: new Date(Math.min(now + input.lifeMs - EARLIER_MS, issuer.notAfter.getTime())),
    signingAlgorithm: ALGORITHM,
    publicKey: keys.publicKey,
    signingKey,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new SubjectAlternativeNameExtension([{ type: "dns", value: input.host }]),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
      await AuthorityKeyIdentifierExtension.create(issuer.publicKey),
    ],
  });
  return { certificatePem: `${certificate.toString("pem")}\n`, keyPem: await exportKey(keys.privateKey) };
}

/** 16 bytes, positive, without a leading zero byte: DER has one form for such a number. */
function randomSerial(): string {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40;
  return bytes.toString("hex");
}

/** A longer name is only in the alternative names, which is what clients compare. */
function commonName(host: string): string {
  return host.length <= MAX_COMMON_NAME ? host : createHash("sha256").update(host).digest("hex");
}

async function exportKey(key: webcrypto.CryptoKey): Promise<string> {
  return `${PemConverter.encode(await webcrypto.subtle.exportKey("pkcs8", key), "PRIVATE KEY")}\n`;
}

async function importKey(pem: string): Promise<webcrypto.CryptoKey> {
  return await webcrypto.subtle.importKey("pkcs8", PemConverter.decodeFirst(pem), ALGORITHM, false, ["sign"]);
}
