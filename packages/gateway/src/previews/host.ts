/** Reads session and port out of a preview's host name, `{port}-{session_id}.<node domain>`. */

export interface PreviewHost {
  sessionId: string;
  port: number;
  /** The host name in lower case, without a port: `8080-abc….localhost`. */
  name: string;
  /** Scheme, name and port as a browser writes them in Origin. */
  origin: string;
}

export interface Site {
  nodeDomain: string;
  secure: boolean;
  /** The port that a Host must name; left out where it is the scheme's default. */
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

/** The preview that a URL (from Origin or Referer) belongs to. */
export function hostOfUrl(site: Site, url: string | undefined): PreviewHost | undefined {
  if (url === undefined || !URL.canParse(url)) return undefined;
  const { protocol, host } = new URL(url);
  return protocol === (site.secure ? "https:" : "http:") ? parseHost(site, host) : undefined;
}

/** Browsers leave out the scheme's default port. */
function portSuffix({ secure, publicPort }: Site): string {
  return publicPort === (secure ? 443 : 80) ? "" : `:${publicPort}`;
}
