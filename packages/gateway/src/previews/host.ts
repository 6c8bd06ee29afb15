/** The host name alone says which session and which port a visitor asks for. */
export interface PreviewHost {
  sessionId: string;
  port: number;
  /** In lower case, without a port: `8080-abc….localhost`. */
  name: string;
  /** Scheme, name and port as a browser writes the origin. */
  origin: string;
}

export interface Site {
  nodeDomain: string;
  secure: boolean;
  /** The only port a Host may name. */
  publicPort: number;
}

const LABEL = /^([1-9][0-9]{0,4})-([a-z0-9]{21})$/;
const MAX_PORT = 65_535;

export function parseHost(site: Site, header: string | undefined): PreviewHost | undefined {
  const authority = (header ?? "").toLowerCase();
  const suffix = `.${site.nodeDomain}${portSuffix(site)}`;
  if (!authority.endsWith(suffix)) return undefined;
  const match = LABEL.exec(authority.slice(0, -suffix.length));
  const port = Number(match?.[1]);
  const sessionId = match?.[2];
  if (sessionId === undefined || port > MAX_PORT) return undefined;
  return {
    sessionId,
    port,
    name: `${port}-${sessionId}.${site.nodeDomain}`,
    origin: `${site.secure ? "https" : "http"}://${authority}`,
  };
}

/** The preview that a URL (an Origin, a Referer) belongs to. */
export function hostOfUrl(site: Site, url: string | undefined): PreviewHost | undefined {
  if (url === undefined || !URL.canParse(url)) return undefined;
  const { protocol, host } = new URL(url);
  return protocol === (site.secure ? "https:" : "http:") ? parseHost(site, host) : undefined;
}

/** Browsers leave the scheme's own port out. */
function portSuffix({ secure, publicPort }: Site): string {
  return publicPort === (secure ? 443 : 80) ? "" : `:${publicPort}`;
}
