/** Official templates: those with a baseline on the node. `base` is official even while no node answers. Pure. */
import { makeTemplateCommand, OFFICIAL_TEMPLATES, SIZE_NAMES, type Template } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import { ApiError } from "../errors/api-error.ts";
import { type Baseline, baselinesFor } from "../fleet/baselines.ts";

export const BASE_TEMPLATE = "base";

export function isOfficial(info: NodeInfo | undefined, name: string): boolean {
  return name === BASE_TEMPLATE || allOf(info, name).length > 0;
}

/** Whether set-up can make a template of this name, on this host or another. */
export function isMadeBySetup(name: string): boolean {
  return OFFICIAL_TEMPLATES.some((official) => official === name);
}

/** Refuses names for a caller's own templates: once the official one is made, it would hide the caller's. */
export function assertNameIsFree(info: NodeInfo | undefined, name: string): void {
  if (!isOfficial(info, name) && !isMadeBySetup(name)) return;
  throw new ApiError(
    "forbidden",
    `name: ${JSON.stringify(name)} is the name of an official template; choose another`,
  );
}

/** The refusal of an official template that no node has. */
export function notMadeHere(name: string): ApiError {
  return new ApiError(
    "not_found",
    `template: ${name} is an official template that is not set up on this service's host; its operator makes it there with: ${makeTemplateCommand(name)}`,
  );
}

/** Newest first by creation time, because the operator chooses the version names and they need not sort. */
export function officialVersions(info: NodeInfo | undefined, name: string): string[] {
  const versions = allOf(info, name).flatMap(({ version }) => (version === undefined ? [] : [version]));
  const madeAt = (version: string) => madeFirst(baselinesFor(info, `${name}@${version}`)) ?? "";
  return [...new Set(versions)].sort((a, b) => madeAt(b).localeCompare(madeAt(a)));
}

export function officialTemplates(info: NodeInfo | undefined): Template[] {
  const names = new Set((info?.baselines ?? []).map(({ template }) => template));
  return [...names].sort().map((name) => officialTemplate(info, name));
}

/** The record of a template, or of one of its versions. */
export function officialTemplate(info: NodeInfo | undefined, name: string, version?: string): Template {
  const baselines = baselinesFor(info, version === undefined ? name : `${name}@${version}`);
  const shown = version ?? baselines[0]?.version;
  const createdAt = madeFirst(baselines);
  return {
    name,
    kind: "official",
    ...(createdAt !== undefined && { created_at: createdAt }),
    status: baselines.length > 0 ? "ready" : "failed",
    ...(shown !== undefined && { version: shown }),
    versions: officialVersions(info, name),
    ...smallestSize(baselines),
    memory: true,
    ...baselines[0]?.origin,
  };
}

function allOf(info: NodeInfo | undefined, name: string): Baseline[] {
  return (info?.baselines ?? []).filter(({ template }) => template === name);
}

function madeFirst(baselines: Baseline[]): string | undefined {
  return baselines.flatMap(({ created_at: at }) => (at === undefined ? [] : [at])).sort()[0];
}

function smallestSize(baselines: Baseline[]): { size?: string } {
  const size = SIZE_NAMES.find((name) => baselines.some((baseline) => baseline.size === name));
  return size === undefined ? {} : { size };
}
