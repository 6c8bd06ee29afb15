/** Whether two services of one host cannot listen at two addresses at the same time. Pure. */

export function collide(one: string, other: string): boolean {
  const [a, b] = [split(one), split(other)];
  if (a.port !== b.port) return false;
  // An IPv6 socket for all addresses takes the port of IPv4 too.
  if (a.host === "::" || b.host === "::") return true;
  if (a.host === "0.0.0.0") return !b.host.includes(":");
  if (b.host === "0.0.0.0") return !a.host.includes(":");
  return (
    a.host === b.host ||
    (isLocalName(a.host) && isLoopback(b.host)) ||
    (isLocalName(b.host) && isLoopback(a.host))
  );
}

const isLocalName = (host: string) => host === "localhost";
const isLoopback = (host: string) => host === "127.0.0.1" || host === "::1";

function split(address: string): { host: string; port: number } {
  const at = address.lastIndexOf(":");
  const host = address.slice(0, at).replaceAll(/[[\]]/g, "").toLowerCase();
  // URL writes an IPv6 address in its one short form.
  const short = host.includes(":") ? URL.parse(`http://[${host}]`)?.hostname.slice(1, -1) : host;
  return { host: short ?? host, port: Number(address.slice(at + 1)) };
}
