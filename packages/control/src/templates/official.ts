/** Official templates: those of which the node has baselines. `base` is one even while no node answers. Pure. */
import { SIZE_NAMES, type Template } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import { BASE_TEMPLATE } from "../sessions/admit.ts";

type Baseline = NodeInfo["baselines"][number];

export function isOfficial(info: NodeInfo | undefined, name: string): boolean {
  return name === BASE_TEMPLATE || baselinesOf(info, name).length > 0;
}

/** Newest first; only those that a node names. */
export function officialVersions(info: NodeInfo | undefined, name: string): string[] {
  const versions = baselinesOf(info, name).flatMap(({ version }) => (version === undefined ? [] : [version]));
  return [...new Set(versions)].sort().reverse();
}

export function officialTemplates(info: NodeInfo | undefined): Template[] {
  const names = new Set((info?.baselines ?? []).map(({ template }) => template));
  return [...names].sort().map((name) => officialTemplate(info, name));
}

/** The record of a template, or of one of its versions. */
export function officialTemplate(info: NodeInfo | undefined, name: string, version?: string): Template {
  const versions = officialVersions(info, name);
  const shown = version ?? versions[0];
  const baselines = baselinesOf(info, name).filter((baseline) => baseline.version === shown);
  const createdAt = baselines.flatMap(({ created_at: at }) => (at === undefined ? [] : [at])).sort()[0];
  return {
    name,
    kind: "official",
    ...(createdAt !== undefined && { created_at: createdAt }),
    status: baselines.length > 0 ? "ready" : "failed",
    ...(shown !== undefined && { version: shown }),
    versions,
    ...smallestSize(baselines),
    memory: true,
  };
}

function baselinesOf(info: NodeInfo | undefined, name: string): Baseline[] {
  return (info?.baselines ?? []).filter(({ template }) => template === name);
}

function smallestSize(baselines: Baseline[]): { size?: string } {
  const size = SIZE_NAMES.find((name) => baselines.some((baseline) => baseline.size === name));
  return size === undefined ? {} : { size };
}
