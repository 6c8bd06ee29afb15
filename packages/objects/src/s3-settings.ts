/** Reads the settings of a store in a bucket of S3, or of a server that speaks its protocol. */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { messageOf } from "@vivarium/kit/unknown-error";

export interface Credentials {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
}

export interface S3Limits {
  /** Attempts of one request, with growing pauses between them. */
  attempts: number;
  connectMs: number;
  /** Time without a byte in either direction. */
  idleMs: number;
  /** Time of one call until its answer begins, with all of its attempts. */
  callMs: number;
  /** Objects on one page of a list. */
  listPage: number;
}

export interface S3Settings {
  bucket: string;
  /** Empty, or ends with a slash. */
  prefix: string;
  /** Address of the server; undefined: that of AWS for the region. */
  endpoint: string | undefined;
  region: string;
  /** The bucket is part of the path of addresses, not of the name of their host. */
  isPathStyle: boolean;
  /** Asked for each request: a file that is replaced counts at once. No setting holds a secret itself, which a log could show. */
  credentials: () => Promise<Credentials>;
  limits?: Partial<S3Limits>;
}

const PLACE = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([A-Za-z0-9_/.-]*))?$/;
const PREFIX_PART = /^[A-Za-z0-9_-][A-Za-z0-9._-]*$/;
const REGION = /^[a-z0-9-]{1,64}$/;
const USUAL_REGION = "us-east-1";

type Environment = Readonly<Record<string, string | undefined>>;

/** Undefined if the environment names no bucket. */
export function readS3Settings(env: Environment): S3Settings | undefined {
  const { VIV_OBJECTS: place, VIV_OBJECTS_REGION: region = "" } = env;
  if (!place) return undefined;
  const endpoint = readEndpoint(env.VIV_OBJECTS_ENDPOINT);
  if (region !== "" && !REGION.test(region))
    refuse("VIV_OBJECTS_REGION", region, "the name of a region, for example eu-central-1");
  return {
    ...readPlace(place),
    endpoint,
    region: region || USUAL_REGION,
    isPathStyle: readPathStyle(env.VIV_OBJECTS_PATH_STYLE, endpoint),
    credentials: credentialsOf(env),
  };
}

function readPlace(text: string): { bucket: string; prefix: string } {
  const [, bucket = "", folder = ""] = PLACE.exec(text) ?? [];
  const parts = folder.replace(/\/$/, "").split("/");
  const isRight = bucket !== "" && (folder === "" || parts.every((part) => PREFIX_PART.test(part)));
  if (!isRight)
    refuse(
      "VIV_OBJECTS",
      text,
      "a bucket and perhaps a prefix, for example s3://bucket or s3://bucket/vivarium",
    );
  return { bucket, prefix: folder === "" ? "" : `${parts.join("/")}/` };
}

/** The text is not repeated: it may hold a password. */
function readEndpoint(text: string | undefined): string | undefined {
  if (!text) return undefined;
  const url = URL.parse(text);
  const isAddress =
    url && /^https?:$/.test(url.protocol) && url.pathname === "/" && !url.search && !url.username;
  if (!isAddress)
    throw new Error(
      "VIV_OBJECTS_ENDPOINT: must be the address of the server alone, for example https://s3.example.net",
    );
  return url.origin;
}

/** Few servers but AWS have a name for each bucket. */
function readPathStyle(text: string | undefined, endpoint: string | undefined): boolean {
  if (!text) return endpoint !== undefined;
  if (!/^[01]$/.test(text))
    refuse(
      "VIV_OBJECTS_PATH_STYLE",
      text,
      "1 (bucket in the path of addresses) or 0 (in the name of the host)",
    );
  return text === "1";
}

function refuse(name: string, text: string, expected: string): never {
  throw new Error(`${name}: must be ${expected}; got ${JSON.stringify(text.slice(0, 100))}`);
}

function credentialsOf(env: Environment): () => Promise<Credentials> {
  const { VIV_OBJECTS_CREDENTIALS_FILE: file, AWS_ACCESS_KEY_ID: id, AWS_SECRET_ACCESS_KEY: secret } = env;
  if (file) {
    if (!path.isAbsolute(file)) refuse("VIV_OBJECTS_CREDENTIALS_FILE", file, "an absolute path");
    return async () => await readCredentials(file);
  }
  if (!id || !secret)
    throw new Error(
      "VIV_OBJECTS: a bucket needs a credential: set VIV_OBJECTS_CREDENTIALS_FILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    );
  const sessionToken = env.AWS_SESSION_TOKEN || undefined;
  return async () => ({ accessKeyId: id, secretAccessKey: secret, sessionToken });
}

/** The file has the form of AWS's own, of which the first profile counts. */
async function readCredentials(file: string): Promise<Credentials> {
  const text = await readFile(file, "utf8").catch((cause: unknown) => {
    throw new Error(`VIV_OBJECTS_CREDENTIALS_FILE: cannot be read: ${messageOf(cause)}`, { cause });
  });
  const [, first = text] = /^\s*\[[^\]\n]*\]\n([^[]*)/m.exec(text) ?? [];
  const read = (name: string) =>
    new RegExp(`^[ \\t]*${name}[ \\t]*=[ \\t]*(\\S+)[ \\t]*$`, "m").exec(first)?.[1];
  const [accessKeyId, secretAccessKey] = [read("aws_access_key_id"), read("aws_secret_access_key")];
  if (!accessKeyId || !secretAccessKey)
    throw new Error(
      `VIV_OBJECTS_CREDENTIALS_FILE: ${file} lacks a line aws_access_key_id = … or aws_secret_access_key = …`,
    );
  return { accessKeyId, secretAccessKey, sessionToken: read("aws_session_token") };
}
