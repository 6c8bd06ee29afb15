/** Brings the name of a registry into the one form by which credentials and images are compared. */
import { mayBePublic } from "@vivarium/oci/public-address";
import { normalRegistry } from "@vivarium/oci/reference";
import { ApiError } from "../errors/api-error.ts";

export function readRegistryHost(text: string): string {
  const registry = normalRegistry(text);
  if (registry === undefined)
    throw new ApiError(
      "validation",
      "registry_host: must be the host of a registry, host or host:port, without scheme and path, such as ghcr.io",
    );
  if (!isOnInternet(registry))
    throw new ApiError(
      "validation",
      "registry_host: must be a registry on the internet, not a private address or a name of this host",
    );
  return registry;
}

/** Whether a registry, in its one form, may be one of the internet: false for private addresses and names of this host. */
export function isOnInternet(registry: string): boolean {
  return mayBePublic(registry.replace(/:\d+$/, ""));
}
